//! Calls whose client no longer waits: they go on by themselves once they are decided.

use rounds::Era;

use super::{callers::SHAPES, *};

/// A call that has ended with this reference.
async fn referred(setup: &Setup, era: Era, tool: &str, declared: Value) -> (Client, String) {
    let client = Client::connect(setup.server.clone(), era, declared).await;
    let ended = client.call(tool, order()).await;
    assert!(ended.is_tool_error(), "{tool}");
    (client, reference(&ended.text()))
}

async fn ended(flows: &Flows) -> usize {
    flows.list(FlowQuery::new().status(FlowStatus::Completed)).await.unwrap().flows.len()
}

#[tokio::test]
async fn the_refund_happens_when_it_is_approved_and_its_outcome_is_fetched_later() {
    for (era, tool) in [Era::Modern, Era::Legacy].into_iter().flat_map(|era| SHAPES.map(|tool| (era, tool))) {
        let (setup, context) = (Setup::new(), format!("{era:?} {tool}"));
        let (client, reference) = referred(&setup, era, tool, json!({})).await;
        setup.decide(Verdict::Approve).await;
        until(&context, async || setup.shop.refunds() == 1).await;
        until(&context, async || ended(&setup.server.flows()).await == 1).await;
        setup.clock.advance(DAY / 2);
        for _ in 0..2 {
            assert_eq!(fetch(&client, &reference).await.text(), "approved by grace", "{context}");
        }
        assert_eq!(setup.shop.refunds(), 1, "{context}");
    }
}

#[tokio::test]
async fn a_denied_call_ends_by_itself_too() {
    let setup = Setup::new();
    let (client, reference) = referred(&setup, Era::Modern, "refund", json!({})).await;
    setup.decide(Verdict::deny_because("too much")).await;
    until("the end", async || ended(&setup.server.flows()).await == 1).await;
    assert_eq!(fetch(&client, &reference).await.text(), "denied by grace: too much");
}

#[tokio::test]
async fn if_the_instance_that_decided_is_lost_another_one_goes_on_after_a_lease_at_most() {
    for tool in ["refund", "round", "steps"] {
        let Setup { shop, ledger, clock, server } = Setup::new();
        let client = Client::connect(server.clone(), Era::Modern, json!({})).await;
        let reference = reference(&client.call(tool, order()).await.text());
        let other = builder(&shop, ledger, &clock).build().unwrap();
        let flows = server.flows();
        drop((client, server));
        settle().await;
        let question = open(&flows).await;
        flows.decide(&question, Verdict::Approve, &grace(), Way::Library).await.unwrap();
        settle().await;
        assert_eq!(shop.refunds(), 0, "{tool}: its instance is gone");
        clock.advance(Duration::from_secs(30));
        until(tool, async || shop.refunds() == 1).await;
        let client = Client::connect(other.clone(), Era::Modern, json!({})).await;
        assert_eq!(fetch(&client, &reference).await.text(), "approved by grace", "{tool}");
        clock.advance(DAY / 4);
        settle().await;
        assert_eq!(shop.refunds(), 1, "{tool}");
    }
}

#[tokio::test]
async fn of_several_instances_that_find_it_one_refunds() {
    let setup = Setup::new();
    let others = [0; 4].map(|_| builder(&setup.shop, setup.ledger.clone(), &setup.clock).build().unwrap());
    let (client, reference) = referred(&setup, Era::Modern, "refund", json!({})).await;
    setup.decide(Verdict::Approve).await;
    setup.clock.advance(Duration::from_secs(30));
    until("the refund", async || setup.shop.refunds() > 0).await;
    for other in &others {
        let client = Client::connect(other.clone(), Era::Modern, json!({})).await;
        assert_eq!(fetch(&client, &reference).await.text(), "approved by grace");
    }
    assert_eq!(fetch(&client, &reference).await.text(), "approved by grace");
    assert_eq!(setup.shop.refunds(), 1);
}

#[tokio::test]
async fn a_call_with_two_approvals_goes_on_after_each_under_the_same_reference() {
    let setup = Setup::new();
    let (client, reference) = referred(&setup, Era::Modern, "twice", json!({})).await;
    setup.decide(Verdict::Approve).await;
    let flows = setup.server.flows();
    let id = flow(&flows).await;
    until("the second question", async || flows.question(id, "second").await.unwrap().is_some()).await;
    assert_eq!(setup.shop.refunds(), 0);
    setup.clock.advance(DAY);
    setup.decide(Verdict::Approve).await;
    until("the refund", async || setup.shop.refunds() == 1).await;
    assert_eq!(fetch(&client, &reference).await.text(), "approved by grace");
}

#[tokio::test]
async fn what_the_call_asks_its_client_after_that_is_asked_when_the_outcome_is_fetched() {
    let form = json!({"elicitation": {"form": {}}});
    let setup = Setup::new();
    let (client, reference) = referred(&setup, Era::Modern, "confirmed", form.clone()).await;
    setup.decide(Verdict::Approve).await;
    let flows = setup.server.flows();
    let id = flow(&flows).await;
    until("the next round", async || flows.get(id).await.unwrap().unwrap().summary.round == 2).await;
    let asked = fetch(&client, &reference).await.asked();
    assert_eq!(asked.message("sure"), "Sure?");
    assert_eq!(
        asked.accept("sure", json!({"sure": true})).send(&client).await.text(),
        "approved by grace, confirmed: true"
    );

    let setup = Setup::new();
    let (client, reference) = referred(&setup, Era::Legacy, "confirmed", form).await;
    setup.decide(Verdict::Approve).await;
    let flows = setup.server.flows();
    let id = flow(&flows).await;
    until("the next round", async || flows.get(id).await.unwrap().unwrap().summary.round == 2).await;
    let params = json!({"name": "flow_result", "arguments": {"reference": reference}});
    let fetching = client.start("tools/call", params).await;
    client.pushed().await.unwrap().answer(json!({"action": "accept", "content": {"sure": false}})).await;
    assert_eq!(fetching.finish().await.text(), "approved by grace, confirmed: false");
    assert_eq!(setup.shop.refunds(), 1);
}

#[tokio::test]
async fn a_question_that_no_one_decides_in_time_ends_its_call_by_itself() {
    for (tool, outcome) in [("refund", "The user did not answer in time: Refund 900 of o-1?"), ("lenient", "expired")] {
        let setup = Setup::new();
        let (client, reference) = referred(&setup, Era::Modern, tool, json!({})).await;
        // The first sweep learns when the question ends.
        setup.clock.advance(Duration::from_secs(60));
        settle().await;
        setup.clock.advance(3 * DAY - Duration::from_secs(60));
        until(tool, async || ended(&setup.server.flows()).await == 1).await;
        assert_eq!(fetch(&client, &reference).await.text(), outcome);
        assert_eq!(setup.shop.refunds(), 0);
    }
}

#[tokio::test]
async fn a_cancelled_call_does_not_go_on() {
    let setup = Setup::new();
    let (client, reference) = referred(&setup, Era::Modern, "refund", json!({})).await;
    let question = setup.question().await;
    setup.server.flows().cancel(question.flow, "a mistake").await.unwrap();
    setup.clock.advance(Duration::from_secs(60));
    settle().await;
    fetch(&client, &reference).await.frozen();
    assert_eq!(setup.shop.refunds(), 0);
}

#[tokio::test]
async fn a_linear_call_whose_process_has_stopped_does_not_go_on_and_the_approver_is_told() {
    let Setup { shop, ledger, clock, server } = Setup::new();
    let client = Client::connect(server.clone(), Era::Modern, json!({})).await;
    assert!(client.call("linear", order()).await.is_tool_error());
    drop((client, server));
    settle().await;
    let other = builder(&shop, ledger, &clock).build().unwrap();
    let flows = other.flows();
    let question = open(&flows).await;
    flows.decide(&question, Verdict::Approve, &grace(), Way::Desk).await.unwrap();
    let decision = async || flows.questions(question.flow).await.unwrap().remove(0).decision.unwrap();
    until("the note", async || decision().await.void.is_some()).await;
    assert!(decision().await.void.unwrap().contains("the process in which it waited has stopped"));
    assert_eq!(shop.refunds(), 0);
}

#[tokio::test]
async fn a_server_that_drains_leaves_decided_calls_to_others() {
    let setup = Setup::new();
    let (_client, _) = referred(&setup, Era::Modern, "refund", json!({})).await;
    setup.server.health().drain(Duration::ZERO).await;
    setup.decide(Verdict::Approve).await;
    setup.clock.advance(Duration::from_secs(60));
    settle().await;
    assert_eq!(setup.shop.refunds(), 0);
    let _other = builder(&setup.shop, setup.ledger.clone(), &setup.clock).build().unwrap();
    settle().await;
    setup.clock.advance(Duration::from_secs(60));
    until("the refund", async || setup.shop.refunds() == 1).await;
}
