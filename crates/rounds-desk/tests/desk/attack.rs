//! What an attacker tries at the desk: as a page of another site, as an approver, and with strange requests.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use rounds_desk::{Permission, Visitor};
use serde_json::json;
use tower_service::Service;

use crate::stage::Stage;

fn get(path: &str) -> http::request::Builder {
    Request::get(path)
}

#[tokio::test]
async fn a_page_of_another_site_cannot_take_the_streams() {
    let stage = Stage::new();
    for (name, value) in
        [("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"), ("origin", "https://evil.example")]
    {
        let page = stage.visit(get("/events").header(name, value).body(String::new()).unwrap(), None).await;
        assert_eq!(page.status, 403, "{name}: {value}");
    }
    let ours = get("/events").header("host", "localhost").header("sec-fetch-site", "same-origin");
    let response = stage.desk.clone().call(ours.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn no_response_may_be_framed_cached_or_read_by_another_origin() {
    let stage = Stage::new();
    stage.client().await.call("book_flight", json!({"from": "A", "to": "B", "date": "C"})).await.asked();
    let flow = stage.get("/").await.link("book_flight");
    for path in ["/", "/try", &flow, &format!("{flow}/journal"), "/nothing", "/flows/x/journal"] {
        let page = stage.get(path).await;
        let header = |name: &str| page.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header("cache-control").as_deref(), Some("no-store"), "{path}");
        assert_eq!(header("x-frame-options").as_deref(), Some("DENY"), "{path}");
        assert_eq!(header("cross-origin-resource-policy").as_deref(), Some("same-origin"), "{path}");
        assert_eq!(header("cross-origin-opener-policy").as_deref(), Some("same-origin"), "{path}");
        assert!(header("content-security-policy").unwrap().contains("frame-ancestors 'none'"), "{path}");
        for name in ["access-control-allow-origin", "access-control-allow-credentials", "set-cookie"] {
            assert_eq!(header(name), None, "{path}");
        }
    }
}

/// An approver may see its question and nothing else, whatever the path looks like.
#[tokio::test]
async fn an_approver_does_not_get_further_with_a_strange_path() {
    let check = |visitor: &Visitor<'_>, permission| match visitor.principal().map(|principal| principal.as_str()) {
        Some("grace") => permission == Permission::Answer,
        Some("operator") => true,
        _ => false,
    };
    let stage = Stage::with(|desk| desk.check(check).base("/desk"));
    stage.client().await.call("weather_h", json!({"location": "Oslo"})).await.asked();
    let flow = stage.get_as("operator", "/").await.link("weather_h");
    let flow = flow.strip_prefix("/desk").unwrap();
    for path in [
        format!("/questions/..{flow}"),
        format!("/questions/%2e%2e{flow}"),
        format!("/questions/../{flow}"),
        format!("/questions//{flow}"),
        format!("/desk/questions/..{flow}"),
        format!("//desk{flow}"),
        format!("/questions{flow}/units"),
        format!("/questions/{}", flow.trim_start_matches("/flows/")),
        format!("{flow}/journal?x=/questions/"),
        format!("{flow}?/questions/"),
        "/questions/".to_owned(),
        "/questions".to_owned(),
    ] {
        let page = stage.get_as("grace", &path).await;
        assert!([403, 404].contains(&page.status.as_u16()), "{path}: {}", page.status);
        page.hides("Oslo").hides("weather_h").hides("Which units?");
        let page = stage.post(&path, &[], Some("grace")).await;
        assert!([403, 404].contains(&page.status.as_u16()), "{path}: {}", page.status);
    }
    assert!(stage.actions.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_huge_or_strange_form_does_nothing() {
    let stage = Stage::new();
    stage.client().await.call("weather_h", json!({"location": "Oslo"})).await.asked();
    let flow = stage.get("/").await.link("weather_h");
    let path = format!("{flow}/cancel");
    let post = async |kind: &str, body: String| {
        stage.visit(Request::post(&path).header("content-type", kind).body(body).unwrap(), None).await.status.as_u16()
    };
    let form = "application/x-www-form-urlencoded";
    assert_eq!(post(form, "a".repeat(10 << 20)).await, 413);
    assert_eq!(post(form, "&=".repeat(100_000)).await, 403);
    assert_eq!(post(form, "form-token=%ff%fe%00&form-token".to_owned()).await, 403);
    assert_eq!(post("multipart/form-data; boundary=x", "--x--".to_owned()).await, 415);
    assert_eq!(post("application/json", "{}".to_owned()).await, 415);
    stage.get(&flow).await.shows(">waiting<");
}

#[tokio::test]
async fn strange_addresses_are_pages_that_say_so() {
    let stage = Stage::new();
    let long = "a".repeat(20_000);
    for path in [
        format!("/?tool={long}"),
        format!("/?status={long}&after={long}"),
        "/?after=1-".to_owned(),
        "/?after=99999999999999999999999-00000000000000000000000000000000".to_owned(),
        "/?after=18446744073709551615-ffffffffffffffffffffffffffffffff".to_owned(),
        "/?tool=%00%ff&status=%00".to_owned(),
        format!("/flows/{long}"),
        "/flows/ffffffffffffffffffffffffffffffff/journal".to_owned(),
        "/try/%00".to_owned(),
        "/events?flow=%00".to_owned(),
    ] {
        let page = stage.get(&path).await;
        assert!([200, 404].contains(&page.status.as_u16()), "{path:.60}: {}", page.status);
        assert!(page.text.len() < 100_000, "{path:.60}: {}", page.text.len());
    }
}
