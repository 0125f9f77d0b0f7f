//! Over HTTP, a question for a caller without a principal warns once.
//!
//! The only test in this file, because `tracing` caches for the whole process which events are enabled: a test beside
//! it that has no subscriber could silence the warning.

#![cfg(feature = "http")]

#[path = "core/common/mod.rs"]
mod common;

use std::sync::{Arc, Mutex};

use common::{http::Http, shop};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

#[tokio::test]
async fn a_question_for_nobody_in_particular_warns_once() {
    let warnings = Warnings::default();
    let _listening = tracing::subscriber::set_default(warnings.clone());
    let stage = common::Visit::of(shop()).await;
    let http = Http::to(&stage.server);
    let _ = stage.order().await;
    let _ = http.with("ada-1").call("order").await.asked();
    assert_eq!(warnings.said(), Vec::<String>::new(), "neither in memory nor for a principal");
    let asked = http.call("order").await.asked();
    let _ = http.send(&asked.retry()).await.asked();
    let _ = Http::to(&stage.server).call("order").await.asked();
    let said = warnings.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("Principal::required"), "{said:?}");
}

/// The warnings of this library.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn said(&self) -> Vec<String> {
        self.0.lock().expect("the lock is not poisoned").clone()
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rounds" && *metadata.level() == tracing::Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

impl Visit for Warnings {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().expect("the lock is not poisoned").push(format!("{value:?}"));
        }
    }
}
