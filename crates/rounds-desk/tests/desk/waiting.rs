//! The first page and the page of a flow.

use serde_json::json;

use crate::stage::Stage;

#[tokio::test]
async fn what_waits_is_listed_oldest_first_with_its_question() {
    let stage = Stage::new();
    stage.get("/").await.shows("<h1 id=\"list-title\">Waiting</h1>").shows("Nothing waits.").hides("<table");
    let client = stage.client().await;
    client.call("weather_h", json!({"location": "Oslo"})).await.asked();
    client.call("book_flight", json!({"from": "A", "to": "B", "date": "C"})).await.asked();
    let page = stage.get("/").await;
    page.shows("<table aria-label=\"Waiting\">").shows("Which units?").shows("A to B on C for").shows("2 flows");
    let rows = page.text.split("<tbody>").nth(1).unwrap();
    assert!(rows.find("weather_h").unwrap() < rows.find("book_flight").unwrap(), "oldest first");
    let only = stage.get("/?tool=weather_h").await;
    only.shows("Which units?").hides("A to B on C").shows("All tools");
    stage.get("/?status=completed").await.hides("Which units?").shows("There is no such flow.");
    stage.get("/?status=all").await.shows("Which units?").shows("aria-label=\"All flows\"");
}

#[tokio::test]
async fn a_list_has_pages() {
    let stage = Stage::new();
    let client = stage.client().await;
    for number in 0..60 {
        client.call("weather_e", json!({"location": format!("{number}")})).await.asked();
    }
    let first = stage.get("/").await;
    assert_eq!(first.text.matches("<tr><th scope=\"row\">").count(), 50);
    let second = stage.get(&first.link("Newer")).await;
    assert_eq!(second.text.matches("<tr><th scope=\"row\">").count(), 10);
    assert_eq!(stage.get(&second.link("Oldest")).await.text.matches("<tr><th scope=\"row\">").count(), 50);
}

#[tokio::test]
async fn a_flow_shows_its_questions_answers_effects_and_result() {
    let stage = Stage::new();
    let client = stage.client().await;
    let asked = client.call("book_flight", json!({"from": "Rome", "to": "Oslo", "date": "today"})).await.asked();
    let flow = stage.get("/").await.link("book_flight");
    stage.get(&flow).await.shows("<h1>book_flight</h1>").shows(">waiting<").shows("Round 1 asks").shows("Rome to Oslo");
    let asked = asked.accept("seat", json!({"seat": "4C"})).send(&client).await.asked();
    stage.get(&flow).await.shows("Leg 2 answers round 1").shows("Round 2 asks").shows("Pay ");
    asked.accept("confirm", json!({"confirm": true})).send(&client).await.text();
    let page = stage.get(&flow).await;
    page.shows(">completed<")
        .shows("The effect <strong>charge</strong> ran once")
        .shows("Idempotency key")
        .shows("Booked Rome to Oslo");
    page.hides("Cancel flow")
        .shows("aria-labelledby=\"timeline-title\"")
        .shows("<h2 id=\"timeline-title\">Timeline</h2>");
    assert_eq!(stage.get("/").await.text.matches("<table").count(), 0, "it waits no longer");
}

#[tokio::test]
async fn a_refused_leg_is_shown_with_its_real_reason() {
    let stage = Stage::new();
    let client = stage.client().await;
    let asked = client.call("weather_e", json!({"location": "Oslo"})).await.asked();
    asked
        .accept("units", json!({"units": "metric"}))
        .with("arguments", json!({"location": "Rome"}))
        .send(&client)
        .await
        .frozen();
    let flow = stage.get("/").await.link("weather_e");
    stage.get(&flow).await.shows("the arguments are not those the flow began with");
}

#[tokio::test]
async fn what_does_not_exist_is_a_page_that_says_so() {
    let stage = Stage::new();
    for path in
        ["/flows/00000000000000000000000000000000", "/flows/x", "/flows//", "/nothing", "/try/0", "/%2e%2e", "//"]
    {
        let page = stage.get(path).await;
        assert_eq!(page.status, 404, "{path}");
        page.shows("<h1>Not Found</h1>");
    }
    let strange = http::Request::builder().method("PUT").uri("/").body(String::new()).unwrap();
    assert_eq!(stage.visit(strange, None).await.status, 405);
}

#[tokio::test]
async fn links_have_the_prefix_under_which_the_desk_is_mounted() {
    let stage = Stage::with(|desk| desk.base("/desk/"));
    stage.client().await.call("weather_e", json!({"location": "Oslo"})).await.asked();
    for path in ["/", "/desk", "/desk/"] {
        let page = stage.get(path).await;
        assert!(page.link("weather_e").starts_with("/desk/flows/"), "{path}");
        page.shows("href=\"/desk/assets/desk.css\"").shows("data-events=\"/desk/events\"");
        let flow = page.link("weather_e");
        assert_eq!(stage.get(&flow).await.status, 200);
        assert_eq!(stage.get(flow.strip_prefix("/desk").unwrap()).await.status, 200, "some routers remove the prefix");
    }
    assert_eq!(stage.get("/desk/assets/desk.js").await.headers["content-type"], "text/javascript; charset=utf-8");
}

#[tokio::test]
async fn every_response_has_the_headers_that_keep_it_safe() {
    let stage = Stage::new();
    for path in ["/", "/try", "/assets/desk.css", "/nothing"] {
        let page = stage.get(path).await;
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(page.headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(page.headers["x-frame-options"], "DENY", "{path}");
    }
    for path in ["/", "/try"] {
        let page = stage.get(path).await;
        assert_eq!(page.headers["cache-control"], "no-store");
        assert_eq!(page.text.matches("<script").count(), 1, "one script, from a file");
        page.hides(" style=").hides("<style").hides(" onclick").hides("http://").hides("https://");
    }
    let css = stage.get("/assets/desk.css").await;
    let again = http::Request::get("/assets/desk.css").header("if-none-match", css.headers["etag"].clone());
    assert_eq!(stage.visit(again.body(String::new()).unwrap(), None).await.status, 304);
}
