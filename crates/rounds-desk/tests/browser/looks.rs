//! How the pages look. With `DESK_SCREENSHOTS` set to a folder, this writes an image of each page there, in both themes and
//! widths. In any case it checks that no page has to be scrolled sideways.

use serde_json::json;

use crate::{chromium::Browser, served::Served};

impl Browser {
    pub(crate) async fn picture(&self, name: &str) {
        let wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        let over = self.client.execute(wide, vec![]).await.unwrap();
        assert_eq!(over, json!(0), "{name} is wider than its window");
        let Ok(folder) = std::env::var("DESK_SCREENSHOTS") else { return };
        let height = self.client.execute("return document.documentElement.scrollHeight", vec![]).await.unwrap();
        let width = self.client.execute("return window.innerWidth", vec![]).await.unwrap();
        let (width, height) = (width.as_u64().unwrap() as u32, height.as_u64().unwrap().clamp(600, 3000) as u32);
        self.size(width, height).await;
        std::fs::write(format!("{folder}/{name}.png"), self.client.screenshot().await.unwrap()).unwrap();
        self.size(width, 800).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_fits_into_wide_and_narrow_windows() {
    let (served, browser) = (Served::start().await, Browser::open().await);
    let client = served.client().await;
    client.call("weather_h", json!({"location": "Oslo"})).await.asked();
    client.call("weather_e", json!({"location": "Rome"})).await.asked();
    let asked = client.call("book_flight", json!({"from": "Rome", "to": "Oslo", "date": "2026-12-01"})).await.asked();
    let asked = asked.accept("seat", json!({"seat": "4C"})).send(&client).await.asked();
    asked.accept("confirm", json!({"confirm": true})).with("arguments", json!({})).send(&client).await.frozen();
    let other = client.call("book_flight", json!({"from": "Bern", "to": "Oslo", "date": "2026-12-02"})).await.asked();
    let other = other.accept("seat", json!({"seat": "1A"})).send(&client).await.asked();
    other.accept("confirm", json!({"confirm": true})).send(&client).await.text();
    let long = client.call("weather_i", json!({"location": "Llanfair".repeat(60)})).await.asked();
    long.accept("units", json!({"units": "metric"})).with("arguments", json!({})).send(&client).await.frozen();
    for (theme, width) in [("light", 1200), ("dark", 1200), ("light", 380), ("dark", 380)] {
        browser.look(theme, width).await;
        let name = |page: &str| format!("{page}-{theme}-{width}");
        browser.visit(&served.url("/")).await;
        browser.picture(&name("waiting")).await;
        browser.follow("book_flight").await;
        browser.find("//h1[normalize-space()='book_flight']").await;
        browser.picture(&name("flow")).await;
        browser.visit(&served.url("/?status=completed")).await;
        browser.follow("book_flight").await;
        browser.find("//h1[normalize-space()='book_flight']").await;
        browser.picture(&name("completed")).await;
        let open = "document.querySelectorAll('details').forEach((details) => (details.open = true))";
        browser.client.execute(open, vec![]).await.unwrap();
        browser.picture(&name("opened")).await;
        browser.visit(&served.url("/")).await;
        browser.follow("weather_i").await;
        browser.find("//h1[normalize-space()='weather_i']").await;
        browser.client.execute(open, vec![]).await.unwrap();
        browser.picture(&name("long")).await;
        browser.visit(&served.url("/?status=failed")).await;
        browser.picture(&name("empty")).await;
        browser.visit(&served.url("/try?tool=weather_h")).await;
        browser.picture(&name("tool")).await;
        browser.fill("location", "Oslo").await;
        browser.press("Call").await;
        browser.shows("Which units?").await;
        browser.picture(&name("question")).await;
        browser.press("Change one character of the state").await;
        browser.shows("Refused.").await;
        browser.picture(&name("refused")).await;
        browser.choose("Units", "metric").await;
        browser.press("Answer").await;
        browser.shows("Weather in Oslo").await;
        browser.picture(&name("result")).await;
    }
    browser.close().await;
}
