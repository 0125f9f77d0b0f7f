//! axe-core finds no violation on any page, in either theme and width.

use serde_json::{Value, json};

use crate::{chromium::Browser, served::Served};

impl Browser {
    /// Runs axe-core on the page.
    pub(crate) async fn assert_accessible(&self, what: &str) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/node_modules/axe-core/axe.min.js");
        let axe = std::fs::read_to_string(path).expect("axe-core is installed: `cargo xtask chromium` does so");
        self.client.execute(&axe, vec![]).await.unwrap();
        let run = "const done = arguments[0]; axe.run().then((found) => done(found.violations), (error) => done([String(error)]))";
        let violations = self.client.execute_async(run, vec![]).await.unwrap();
        let said = |violation: &Value| {
            let nodes = violation["nodes"].as_array().into_iter().flatten().map(|node| node["html"].to_string());
            format!("{}: {}\n  {}", violation["id"], violation["help"], nodes.collect::<Vec<_>>().join("\n  "))
        };
        let violations: Vec<String> = violations.as_array().unwrap().iter().map(said).collect();
        assert!(violations.is_empty(), "{what}:\n{}", violations.join("\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_accessible() {
    let (served, browser) = (Served::start().await, Browser::open().await);
    browser.visit(&served.url("/")).await;
    browser.assert_accessible("the first page without flows").await;
    let client = served.client().await;
    client.call("weather_h", json!({"location": "Oslo"})).await.asked();
    let asked = client.call("book_flight", json!({"from": "Rome", "to": "Oslo", "date": "today"})).await.asked();
    let asked = asked.accept("seat", json!({"seat": "4C"})).send(&client).await.asked();
    asked.accept("confirm", json!({"confirm": true})).with("arguments", json!({})).send(&client).await.frozen();
    for (theme, width) in [("light", 1200), ("dark", 1200), ("light", 380), ("dark", 380)] {
        browser.look(theme, width).await;
        let on = |page: &str| format!("{page}, {theme}, {width}");
        browser.visit(&served.url("/")).await;
        browser.assert_accessible(&on("the first page")).await;
        browser.follow("book_flight").await;
        browser.find("//h1[normalize-space()='book_flight']").await;
        browser.assert_accessible(&on("a flow")).await;
        browser.visit(&served.url("/nothing")).await;
        browser.assert_accessible(&on("an error")).await;
        browser.visit(&served.url("/try?tool=weather_e")).await;
        browser.assert_accessible(&on("a tool")).await;
        browser.press("Call").await;
        browser.shows("Enter a value.").await;
        browser.assert_accessible(&on("a form with a problem")).await;
        browser.fill("location", "Oslo").await;
        browser.press("Call").await;
        browser.shows("Which units?").await;
        browser.assert_accessible(&on("a question")).await;
        browser.press("Change one character of the state").await;
        browser.shows("Refused.").await;
        browser.assert_accessible(&on("a refused leg")).await;
        browser.choose("Units", "metric").await;
        browser.press("Answer").await;
        browser.shows("Weather in Oslo").await;
        browser.assert_accessible(&on("a result")).await;
    }
    browser.close().await;
}
