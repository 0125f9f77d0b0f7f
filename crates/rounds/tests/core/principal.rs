//! A flow belongs to the principal that began it.

use std::sync::{Arc, Mutex};

use crate::common::{Desk, Visit, shop, small};
use rmcp::{RoleServer, service::RequestContext};
use rounds::{Principal, observe::Refusal, principal::Identify};
use serde_json::json;

/// The authenticated principal, as an authenticating proxy would know it for each request.
#[derive(Clone, Default)]
struct SignedIn(Arc<Mutex<Option<&'static str>>>);

impl SignedIn {
    fn set(&self, name: Option<&'static str>) {
        *self.0.lock().expect("the lock is not poisoned") = name;
    }

    fn identify(&self) -> impl Identify + use<> {
        let who = self.clone();
        move |_: &RequestContext<RoleServer>| who.0.lock().expect("the lock is not poisoned").map(Principal::new)
    }
}

async fn stage() -> (Visit, SignedIn) {
    let who = SignedIn::default();
    let stage = Visit::with(shop(), |builder| builder.principal(who.identify())).await;
    (stage, who)
}

#[tokio::test]
async fn whoever_began_a_flow_goes_on_with_it_and_nobody_else() {
    let everybody = [None, Some("ada"), Some("Ada"), Some("ada "), Some("")];
    for began in everybody {
        let (stage, who) = stage().await;
        who.set(began);
        let accepted = stage.order().await.accept("size", small());
        for other in everybody.into_iter().filter(|other| *other != began) {
            who.set(other);
            accepted.send(&stage.client).await.frozen();
        }
        assert_eq!(stage.events.refusals(), [Refusal::Principal; 4], "begun by {began:?}");
        assert_eq!((stage.runs(), stage.effects.count()), (1, 0));
        who.set(began);
        assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
    }
}

#[tokio::test]
async fn a_reply_is_replayed_to_its_owner_only() {
    let (stage, who) = stage().await;
    who.set(Some("ada"));
    let accepted = stage.order().await.accept("size", small());
    let _ = accepted.send(&stage.client).await.text();
    who.set(Some("eve"));
    accepted.send(&stage.client).await.frozen();
    who.set(None);
    accepted.send(&stage.client).await.frozen();
    who.set(Some("ada"));
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
}

#[tokio::test]
async fn where_a_principal_is_required_nobody_is_asked_without_one() {
    let who = SignedIn::default();
    let required = Principal::required(who.identify());
    let stage = Visit::with(shop(), |builder| builder.principal(required)).await;
    for method in ["tools/call", "prompts/get", "resources/read"] {
        let leg = stage.client.request(method, json!({"name": "order", "uri": "order"})).await;
        assert_eq!(leg.error()["code"], -32600);
        assert_eq!(
            leg.error()["message"],
            "this server asks only authenticated callers, and this request has no principal: sign in, then call again"
        );
    }
    who.set(Some("ada"));
    let accepted = stage.order().await.accept("size", small());
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
}

#[tokio::test]
async fn where_a_principal_is_required_a_call_that_asks_nothing_needs_none() {
    let desk = Desk::new(|_| async { crate::common::Reply::text("the menu") });
    let nobody = |_: &RequestContext<RoleServer>| None;
    let stage = Visit::with(desk, |builder| builder.principal(Principal::required(nobody))).await;
    assert_eq!(stage.client.call("menu", json!({})).await.text(), "the menu");
}
