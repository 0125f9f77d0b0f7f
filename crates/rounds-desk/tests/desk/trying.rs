//! "Try it", without scripts.

use rounds_desk::ActionKind;

use crate::stage::{Page, Stage};

/// Calls a tool with one argument.
async fn call(stage: &Stage, tool: &str, argument: &str) -> Page {
    let page = stage.get(&format!("/try?tool={tool}")).await;
    stage.submit(&page, "/try", &[("a.0", argument)]).await
}

#[tokio::test]
async fn every_tool_is_a_form() {
    let stage = Stage::new();
    let page = stage.get("/try").await;
    page.shows("<nav class=\"tools\" aria-label=\"Tools\">").shows(">Call</button>");
    page.shows("<h2 id=\"wire-title\">Wire</h2>").shows("<h2 id=\"runs-title\">Handler runs</h2>");
    for tool in ["weather_a", "weather_e", "weather_h", "weather_i", "book_flight", "transfer", "audit_log"] {
        stage.get(&page.link(tool)).await.shows(&format!("<h2>{tool}</h2>")).shows(">Call</button>");
    }
    stage.get("/try?tool=book_flight").await.shows("<label for=\"a.0\">").shows("The airport to leave from");
    assert_eq!(stage.get("/try?tool=none").await.status, 404);
}

#[tokio::test]
async fn a_call_shows_both_sides_of_the_wire_and_runs_once() {
    let stage = Stage::new();
    let asked = call(&stage, "weather_h", "Oslo").await;
    asked.shows("Which units?").shows("&quot;resultType&quot;: &quot;input_required&quot;").shows("Inside the state");
    asked.shows(">Answer</button>").shows(">Decline</button>").shows("ran once from its beginning");
    let path = asked.call();
    let invalid = stage.submit(&asked, &path, &[("answer", "1"), ("q0.0", "")]).await;
    assert_eq!(invalid.status, 422);
    invalid.shows("Enter a value.").shows("aria-invalid=\"true\"");
    let done = stage.submit(&asked, &path, &[("answer", "1"), ("q0.0", "metric")]).await;
    done.shows("Weather in Oslo: 22°C")
        .shows("ran once from its beginning")
        .shows("Leg 2: the handler continues where it waited");
    let again = stage.submit(&done, &path, &[("again", "1")]).await;
    again.shows("Leg 3: Send the same leg again").shows("the recorded reply is sent again, and nothing runs");
    again.shows("ran once from its beginning");
    let actions = stage.actions.lock().unwrap();
    assert!(actions.len() == 3 && actions.iter().all(|action| action.kind == ActionKind::Tried));
}

#[tokio::test]
async fn a_changed_state_is_refused_with_one_error_and_its_reason_is_beside_it() {
    let stage = Stage::new();
    let asked = call(&stage, "weather_e", "Oslo").await;
    let path = asked.call();
    let refused = stage.submit(&asked, &path, &[("change", "1")]).await;
    refused.shows("Invalid or expired requestState").shows("&quot;reason&quot;: &quot;invalid_request_state&quot;");
    refused.shows("<strong>refused</strong>: the state was changed after it was sealed").shows("<mark>");
    refused.shows("The real reason: <strong>the state was changed after it was sealed</strong>.");
    let done = stage.submit(&refused, &path, &[("answer", "1"), ("q0.0", "imperial")]).await;
    done.shows("Weather in Oslo: 72°F").shows("Leg 3: Answer");
}

#[tokio::test]
async fn a_question_can_be_declined() {
    let stage = Stage::new();
    let asked = call(&stage, "weather_h", "Oslo").await;
    stage.submit(&asked, &asked.call(), &[("decline", "1")]).await.shows("Cancelled (decline).");
}

#[tokio::test]
async fn a_form_that_was_answered_in_another_window_sends_nothing() {
    let stage = Stage::new();
    let asked = call(&stage, "book_flight", "Rome").await;
    // Its arguments are three.
    asked.shows("Enter a value.");
    let page = stage.get("/try?tool=book_flight").await;
    let asked = stage.submit(&page, "/try", &[("a.0", "1"), ("a.1", "B"), ("a.2", "C")]).await;
    let path = asked.call();
    let seat = stage.submit(&asked, &path, &[("answer", "1"), ("q0.0", "4C")]).await;
    seat.shows("Pay ").shows("Download the journal");
    let late = stage.submit(&asked, &path, &[("answer", "1"), ("q0.0", "5D")]).await;
    assert_eq!(late.status, 409);
    late.shows("The question has changed");
    let journal = stage.get(&format!("{path}/journal")).await;
    assert_eq!(journal.headers["content-type"], "application/json");
    let replayed = rounds::test::replay(
        &stage.server,
        "book_flight",
        serde_json::json!({"from": "1", "to": "B", "date": "C"}),
        &journal.text,
    );
    assert_eq!(replayed.await, rounds::test::Replayed::Asks(vec!["confirm".to_owned()]));
}

#[tokio::test]
async fn a_call_belongs_to_the_visitor_who_made_it() {
    let stage = Stage::new();
    let page = stage.get_as("ada", "/try?tool=weather_h").await;
    let asked = stage.submit(&page, "/try", &[("a.0", "Oslo")]).await;
    let path = asked.call();
    assert_eq!(stage.get_as("ada", &path).await.status, 200);
    for name in ["bob", "ADA", "ada "] {
        assert_eq!(stage.get_as(name, &path).await.status, 404, "{name}");
    }
    assert_eq!(stage.get(&path).await.status, 404);
    let flow = stage.get_as("ada", "/").await.link("weather_h");
    stage.get_as("ada", &flow).await.shows("<dt>Principal</dt><dd>ada</dd>");
}

#[tokio::test]
async fn the_page_is_there_only_where_the_desk_allows_it() {
    let stage = Stage::new();
    let server = stage.server.clone();
    let desk = rounds_desk::Desk::new(&server).service("127.0.0.1:1".parse().unwrap()).unwrap();
    let stage = Stage { desk, ..stage };
    stage.get("/").await.hides("Try it");
    assert_eq!(stage.get("/try").await.status, 404);
}

#[tokio::test]
async fn old_calls_are_dropped() {
    let stage = Stage::new();
    let first = call(&stage, "weather_e", "Oslo").await.call();
    for _ in 0..64 {
        call(&stage, "weather_e", "Oslo").await;
    }
    stage.get(&first).await.shows("dropped to make space");
}
