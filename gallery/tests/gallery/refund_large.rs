//! A large refund: another person decides, and one refund is made.

use gallery::Gallery;
use rounds::{
    Era, Principal, Rounds,
    elsewhere::{Elsewhere, Verdict, Way},
    register::{FlowQuery, FlowStatus},
    test::Client,
};
use serde_json::{Value, json};

const PAGE: &str = "https://desk.example/questions";

fn server() -> Rounds<Gallery> {
    let ada = |_: &_| Some(Principal::new("ada"));
    gallery::rounds().principal(ada).register().elsewhere(Elsewhere::at(PAGE).result_tool()).build().unwrap()
}

fn refunds(server: &Rounds<Gallery>) -> u64 {
    server.handler().audited().get("refund_large").copied().unwrap_or(0)
}

fn refund(amount: u32) -> Value {
    json!({"order_id": "ORD-7002", "amount": amount})
}

async fn decide(server: &Rounds<Gallery>, who: &str, verdict: Verdict) -> bool {
    let flows = server.flows();
    let waiting = flows.list(FlowQuery::new().status(FlowStatus::Waiting)).await.unwrap().flows;
    let question = flows.question(waiting[0].id, "approval").await.unwrap().unwrap();
    assert_eq!(question.message, "Refund 900 of ORD-7002?");
    flows.decide(&question, verdict, &Principal::new(who), Way::Library).await.is_ok()
}

#[tokio::test]
async fn a_small_refund_is_made_at_once() {
    let server = server();
    let client = Client::modern(server.clone()).await;
    assert_eq!(client.call("refund_large", refund(500)).await.text(), "Refunded 500 of ORD-7002.");
    assert_eq!(refunds(&server), 1);
}

#[tokio::test]
async fn a_large_refund_is_made_once_another_person_has_approved_it() {
    for (verdict, text, made) in [
        (Verdict::Approve, "Refunded 900 of ORD-7002, approved by grace.", 1),
        (Verdict::deny_because("too much"), "Refund of ORD-7002 denied by grace: too much.", 0),
    ] {
        let server = server();
        let client = Client::modern(server.clone()).await;
        let asked = client.call("refund_large", refund(900)).await.asked();
        assert!(!decide(&server, "ada", verdict.clone()).await, "the requester may not");
        assert!(decide(&server, "grace", verdict).await);
        for _ in 0..2 {
            assert_eq!(asked.accept("approval", json!({})).send(&client).await.text(), text);
        }
        assert_eq!(refunds(&server), made);
    }
}

#[tokio::test]
async fn a_client_that_visits_no_pages_fetches_the_outcome_later() {
    for era in [Era::Modern, Era::Legacy] {
        let server = server();
        let client = Client::connect(server.clone(), era, json!({})).await;
        let told = client.call("refund_large", refund(900)).await.text();
        let (_, reference) = told.split_once("The reference of this call is ").unwrap();
        let reference = json!({"reference": reference.split('.').next()});
        assert!(decide(&server, "grace", Verdict::Approve).await);
        let fetched = client.call("flow_result", reference).await;
        assert_eq!(fetched.text(), "Refunded 900 of ORD-7002, approved by grace.", "{era:?}");
        assert_eq!(refunds(&server), 1);
    }
}
