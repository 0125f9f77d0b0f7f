//! A client that goes away while its request is in flight: the same with and without `Rounds`, in both lanes.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use http_body_util::BodyExt;
use rmcp::{RoleServer, service::RequestContext, transport::streamable_http_server::StreamableHttpServerConfig};
use rounds::{Ask, Rounds};
use rounds_http::Endpoint;
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};
use tower_service::Service;

use crate::{
    lanes::{Outcome, Tool, called, done, endpoint, rmcp},
    send::Sent,
};

/// What a handler has done, in order.
#[derive(Clone, Default)]
struct Steps {
    done: Arc<Mutex<Vec<&'static str>>>,
    more: Arc<Notify>,
}

impl Steps {
    fn step(&self, step: &'static str) {
        self.done.lock().unwrap().push(step);
        self.more.notify_one();
    }

    async fn until(&self, step: &'static str) {
        while !self.done.lock().unwrap().contains(&step) {
            self.more.notified().await;
        }
    }

    /// Charges a card, waits for a while, and writes a receipt; and says when its client is gone.
    async fn buy(self, context: RequestContext<RoleServer>) -> Outcome {
        let _gone = Gone(self.clone());
        self.step("charged");
        context.ct.cancelled().await;
        self.step("told");
        tokio::time::sleep(Duration::from_millis(400)).await;
        self.step("receipt");
        done()
    }
}

/// Says that a handler is gone.
struct Gone(Steps);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.step("gone");
    }
}

fn json_response() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default().with_json_response(true)
}

/// A request whose client goes away as soon as the handler has charged.
async fn leaves(steps: &Steps, mut leg: Pin<Box<impl Future<Output: Sized> + ?Sized>>) {
    tokio::select! {
        biased;
        _ = &mut leg => panic!("a handler that waits has no answer"),
        () = steps.until("charged") => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_has_not_asked_does_all_its_steps_with_and_without_us_in_both_lanes() {
    let legacy = Sent::legacy(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "it"}}));
    for sent in [called(), legacy] {
        for lane in 0..4 {
            let steps = Steps::default();
            let handler = steps.clone();
            let tool = Tool::new(move |context| handler.clone().buy(context));
            let wrapped = Rounds::new(tool.clone());
            let config = json_response().with_legacy_session_mode(false);
            match lane {
                0 => leaves(&steps, Box::pin(sent.to(&mut rmcp(&tool, config)))).await,
                1 => leaves(&steps, Box::pin(sent.to(&mut rmcp(&wrapped, config)))).await,
                2 => leaves(&steps, Box::pin(sent.to(&mut endpoint(&tool, config)))).await,
                _ => leaves(&steps, Box::pin(sent.to(&mut endpoint(&wrapped, config)))).await,
            }
            steps.until("gone").await;
            assert_eq!(*steps.done.lock().unwrap(), ["charged", "told", "receipt", "gone"], "{lane}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_has_asked_is_told_and_dropped_after_five_seconds() {
    let steps = Steps::default();
    let handler = steps.clone();
    let tool = Tool::new(move |context| {
        let steps = handler.clone();
        async move {
            let ask = Ask::from_context(&context)?;
            let _: bool = ask.confirm("Buy it?").await?;
            let _gone = Gone(steps.clone());
            steps.step("charged");
            context.ct.cancelled().await;
            steps.step("told");
            std::future::pending().await
        }
    });
    let mut endpoint = Endpoint::new(&Rounds::new(tool), json_response());
    let asked = endpoint.call(called().request()).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let asked: Value = serde_json::from_slice(&asked).unwrap();
    let mut params = json!({"name": "it", "requestState": asked["result"]["requestState"]});
    params["inputResponses"] = json!({"confirm": {"action": "accept", "content": {"confirm": true}}});
    let sent = Sent::new("tools/call", params);
    leaves(&steps, Box::pin(sent.to(&mut endpoint))).await;
    let left = Instant::now();
    steps.until("gone").await;
    assert_eq!(*steps.done.lock().unwrap(), ["charged", "told", "gone"]);
    assert_eq!(left.elapsed().as_secs(), 5);
    let retry = sent.to(&mut endpoint).await;
    assert!(retry.body.contains("Invalid or expired requestState"), "{retry:?}");
}
