//! What a person does at the desk.

use serde_json::json;

use crate::{chromium::Browser, served::Served};

/// From the call to its result, with the approval of a person who finds the question on the first page.
#[tokio::test(flavor = "multi_thread")]
async fn a_person_approves_a_call() {
    let (served, browser) = (Served::shop().await, Browser::open().await);
    browser.visit(&served.url("/")).await;
    browser.shows("Live").await;
    let pages = json!({"elicitation": {"url": {}}});
    let client = rounds::test::Client::connect(served.server.clone(), rounds::Era::Modern, pages).await;
    let asked = client.call("refund", json!({})).await.asked();
    browser.shows("Refund 900 of order o-1?").await;
    browser.follow("refund").await;
    browser.follow("Refund 900 of order o-1?").await;
    browser.find("//h1[normalize-space()='Refund 900 of order o-1?']").await;
    for (theme, width) in [("dark", 380), ("light", 1200)] {
        browser.look(theme, width).await;
        browser.picture(&format!("approval-{theme}-{width}")).await;
        browser.assert_accessible(&format!("an approval, {theme}, {width}")).await;
    }
    browser.press("Approve").await;
    browser.shows("Approved by local").await;
    browser.assert_accessible("a decision").await;
    let retry = asked.retry().respond("approval", json!({"action": "accept"}));
    assert_eq!(retry.send(&client).await.text(), "refunded, approved by local");
    browser.follow("refund").await;
    browser.shows("completed").await;
    assert_eq!(served.actions.lock().unwrap().len(), 1);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_cancels_a_flow() {
    let (served, browser) = (Served::start().await, Browser::open().await);
    browser.visit(&served.url("/")).await;
    browser.shows("Nothing waits.").await;
    browser.shows("Live").await;
    let client = served.client().await;
    let asked = client.call("weather_h", json!({"location": "Oslo"})).await.asked();
    // The page learns of it without being loaded again.
    browser.find("//table[@aria-label='Waiting']//tbody/tr").await;
    browser.shows("Which units?").await;
    browser.follow("weather_h").await;
    browser.find("//h1[normalize-space()='weather_h']").await;
    assert!(browser.region("Timeline").await.contains("Round 1 asks"));
    browser.press("Cancel flow").await;
    browser.shows("cancelled").await;
    assert!(browser.region("Timeline").await.contains("Cancelled"));
    asked.accept("units", json!({"units": "metric"})).send(&client).await.frozen();
    browser.client.refresh().await.unwrap();
    browser.shows("the flow was cancelled").await;
    assert_eq!(served.actions.lock().unwrap().len(), 1);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_finds_the_journal_of_a_flow_and_its_handler_runs() {
    let (served, browser) = (Served::start().await, Browser::open().await);
    let client = served.client().await;
    let trip = json!({"from": "Rome", "to": "Oslo", "date": "today"});
    let asked = client.call("book_flight", trip.clone()).await.asked();
    browser.visit(&served.url("/")).await;
    browser.follow("book_flight").await;
    browser.find("//h1[normalize-space()='book_flight']").await;
    browser.shows("Live").await;
    assert!(browser.region("Handler runs").await.contains("The handler ran once from its beginning."));
    asked.accept("seat", json!({"seat": "4C"})).send(&client).await.asked();
    browser.shows("The handler ran 2 times from its beginning.").await;
    assert!(browser.region("Journal").await.contains("the question `seat`"));
    let link = browser.find("//a[normalize-space()='Download the journal']").await;
    let href = link.attr("href").await.unwrap().unwrap();
    // What the browser saves is what it reads at this address.
    let load = "const done = arguments[1]; fetch(arguments[0]).then((file) => file.text()).then(done)";
    let saved = browser.client.execute_async(load, vec![json!(href)]).await.unwrap();
    let replayed = rounds::test::replay(&served.server, "book_flight", trip, saved.as_str().unwrap()).await;
    assert_eq!(replayed, rounds::test::Replayed::Asks(vec!["confirm".to_owned()]));
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_tries_a_tool_with_a_changed_state() {
    let (served, browser) = (Served::start().await, Browser::open().await);
    browser.visit(&served.url("/")).await;
    browser.follow("Try it").await;
    browser.find("//nav[@aria-label='Tools']//li").await;
    browser.follow("weather_e").await;
    browser.fill("location", "Oslo").await;
    browser.press("Call").await;
    browser.shows("Which units?").await;
    assert!(browser.region("Wire").await.contains("input_required"));
    browser.press("Change one character of the state").await;
    browser.shows("Refused.").await;
    assert!(browser.region("Wire").await.contains("Invalid or expired requestState"));
    assert!(browser.region("Handler runs").await.contains("the state was changed after it was sealed"));
    browser.press("Answer").await;
    browser.shows("Enter a value.").await;
    browser.choose("Units", "metric").await;
    browser.press("Answer").await;
    browser.shows("Weather in Oslo: 22°C").await;
    browser.press("Send the same leg again").await;
    browser.shows("the recorded reply is sent again, and nothing runs").await;
    browser.close().await;
}

/// Everything that changes something is a form.
#[tokio::test(flavor = "multi_thread")]
async fn a_person_without_scripts_can_do_the_same() {
    let (served, browser) = (Served::start().await, Browser::open().await);
    browser.without_scripts().await;
    browser.visit(&served.url("/try?tool=weather_h")).await;
    browser.fill("location", "Oslo").await;
    browser.press("Call").await;
    browser.choose("Units", "imperial").await;
    browser.press("Answer").await;
    browser.find("//*[contains(text(), 'Weather in Oslo: 72°F')]").await;
    served.client().await.call("weather_h", json!({"location": "Rome"})).await.asked();
    browser.follow("Waiting").await;
    browser.follow("weather_h").await;
    browser.press("Cancel flow").await;
    browser.find("//span[normalize-space()='cancelled']").await;
    browser.close().await;
}

/// With the keyboard alone: to the content, to the first flow, and to its button.
#[tokio::test(flavor = "multi_thread")]
async fn a_person_with_a_keyboard_reaches_everything() {
    use fantoccini::key::Key;
    let (served, browser) = (Served::start().await, Browser::open().await);
    served.client().await.call("weather_h", json!({"location": "Rome"})).await.asked();
    browser.visit(&served.url("/")).await;
    let keys = async |times: usize, key: Key| {
        for _ in 0..times {
            let focused = browser.client.active_element().await.unwrap();
            focused.send_keys(&char::from(key).to_string()).await.unwrap();
        }
    };
    keys(1, Key::Tab).await;
    let skip = browser.client.active_element().await.unwrap();
    assert_eq!(skip.text().await.unwrap(), "Skip to the content");
    keys(1, Key::Enter).await;
    // The filter: tool, status, button. Then the first row.
    keys(4, Key::Tab).await;
    assert_eq!(browser.client.active_element().await.unwrap().text().await.unwrap(), "weather_h");
    keys(1, Key::Enter).await;
    browser.find("//h1[normalize-space()='weather_h']").await;
    browser.close().await;
}
