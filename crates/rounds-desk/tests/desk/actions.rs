//! Actions: what they change, how they are recorded, and what a forged form cannot do.

use rounds::register::{FlowQuery, FlowStatus};
use rounds_desk::ActionKind;
use serde_json::json;

use crate::stage::Stage;

async fn cancelled(stage: &Stage) -> usize {
    stage.server.flows().list(FlowQuery::new().status(FlowStatus::Cancelled)).await.unwrap().flows.len()
}

#[tokio::test]
async fn a_cancelled_flow_is_refused_and_the_action_has_its_actor() {
    let stage = Stage::new();
    let client = stage.client().await;
    let asked = client.call("weather_h", json!({"location": "Oslo"})).await.asked();
    let flow = stage.get("/").await.link("weather_h");
    let page = stage.get_as("ada", &flow).await;
    page.shows(">Cancel flow</button>").shows("Signed in as <strong>ada</strong>");
    let page = stage.submit(&page, &format!("{flow}/cancel"), &[]).await;
    page.shows(">cancelled<").hides("Cancel flow");
    asked.accept("units", json!({"units": "metric"})).send(&client).await.frozen();
    let actions = stage.actions.lock().unwrap().clone();
    let [action] = actions.as_slice() else { panic!("one action: {actions:?}") };
    assert_eq!((action.kind, &*action.target), (ActionKind::Cancelled, "weather_h"));
    assert_eq!(action.actor.as_ref().map(|actor| actor.as_str()), Some("ada"));
    assert!(flow.ends_with(&action.flow.unwrap().to_string()));
    stage.get(&flow).await.shows("the flow was cancelled");
}

#[tokio::test]
async fn an_action_that_comes_too_late_changes_and_records_nothing() {
    let stage = Stage::new();
    let client = stage.client().await;
    let asked = client.call("weather_h", json!({"location": "Oslo"})).await.asked();
    let flow = stage.get("/").await.link("weather_h");
    let page = stage.get(&flow).await;
    asked.accept("units", json!({"units": "metric"})).send(&client).await.text();
    stage.submit(&page, &format!("{flow}/cancel"), &[]).await.shows(">completed<");
    assert!(stage.actions.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_form_of_another_page_visitor_or_origin_does_nothing() {
    let stage = Stage::new();
    let client = stage.client().await;
    client.call("weather_e", json!({"location": "Oslo"})).await.asked();
    client.call("weather_h", json!({"location": "Oslo"})).await.asked();
    let first = stage.get("/").await;
    let (one, other) = (first.link("weather_e"), first.link("weather_h"));
    let (one_path, other_path) = (format!("{one}/cancel"), format!("{other}/cancel"));
    let page = stage.get_as("ada", &one).await;
    let token = |page: &crate::stage::Page| {
        let value = page.text.split("name=\"form-token\" value=\"").nth(1).unwrap();
        vec![("form-token".to_owned(), value.split('"').next().unwrap().to_owned())]
    };
    let forged = [
        (one_path.as_str(), vec![], Some("ada")),
        (&one_path, vec![("form-token".to_owned(), "00".repeat(32))], Some("ada")),
        (&one_path, token(&page), Some("bob")),
        (&one_path, token(&page), None),
        (&other_path, token(&page), Some("ada")),
    ];
    for (path, fields, name) in forged {
        let answer = stage.post(path, &fields, name).await;
        assert_eq!(answer.status, 403, "{path} {name:?}");
        answer.shows("Nothing was done");
    }
    let body = format!("form-token={}", token(&page)[0].1);
    for (header, value) in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        let request = http::Request::post(&one_path).header("content-type", "application/x-www-form-urlencoded");
        let request = request.header(header, value).body(body.clone()).unwrap();
        assert_eq!(stage.visit(request, Some("ada")).await.status, 403, "{header}");
    }
    assert_eq!(stage.visit(http::Request::get(&one_path).body(String::new()).unwrap(), Some("ada")).await.status, 404);
    assert_eq!(cancelled(&stage).await, 0);
    assert!(stage.actions.lock().unwrap().is_empty());
    stage.post(&one_path, &token(&page), Some("ada")).await;
    assert_eq!(cancelled(&stage).await, 1, "the honest form works");
}
