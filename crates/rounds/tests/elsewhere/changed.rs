//! What was shown is what was approved: a decision on other words does not count, and the approver is told.

use rounds::Era;

use super::*;

/// A call that was approved, on a server whose questions have other words by now.
async fn approved_before_a_deploy(tool: &str, way: Way) -> (Setup, rounds::test::AskedRound, QuestionElsewhere) {
    let Setup { shop, ledger, clock, server } = Setup::new();
    let client = visitor(&server).await;
    let asked = client.call(tool, order()).await.asked();
    let question = open(&server.flows()).await;
    server.flows().decide(&question, Verdict::Approve, &grace(), way).await.unwrap();
    drop((client, server));
    let shop = shop.reworded();
    let server = builder(&shop, ledger.clone(), &clock).build().unwrap();
    (Setup { shop, ledger, clock, server }, asked, question)
}

async fn void(setup: &Setup, question: &QuestionElsewhere) -> Option<String> {
    setup.server.flows().questions(question.flow).await.unwrap().remove(0).decision.unwrap().void
}

/// Whether the record of the flow says that the decision of its first round does not count.
async fn is_recorded_as_void(setup: &Setup, question: &QuestionElsewhere) -> bool {
    let flows = setup.server.flows();
    let record = flows.get(question.flow).await.unwrap().unwrap();
    let details = flows.details(&record).unwrap();
    details.rounds[0].answers.as_ref().unwrap()["approval"]["void"] == true
}

#[tokio::test]
async fn a_durable_call_that_asks_something_else_ends_and_the_approver_is_told() {
    let (setup, asked, question) = approved_before_a_deploy("refund", Way::Desk).await;
    let client = visitor(&setup.server).await;
    for _ in ["the retry", "its retry"] {
        let ended = asked.accept("approval", json!({})).send(&client).await;
        assert!(!ended.is_asked(), "{:?}", ended.response());
        let why = void(&setup, &question).await.unwrap();
        assert!(why.contains("asked something else when the call continued"), "{why}");
        assert_eq!(setup.shop.refunds(), 0);
    }
}

#[tokio::test]
async fn a_call_that_is_asked_round_by_round_asks_again_and_the_approver_is_told() {
    for tool in ["round", "steps"] {
        let (setup, asked, question) = approved_before_a_deploy(tool, Way::Library).await;
        let client = visitor(&setup.server).await;
        assert_eq!(void(&setup, &question).await, None, "{tool}");
        for _ in ["the retry", "its retry"] {
            let again = asked.accept("approval", json!({})).send(&client).await.asked();
            assert_eq!(again.message("approval"), "Pay back 900 of o-1?", "{tool}");
            assert!(void(&setup, &question).await.is_some(), "{tool}");
        }
        assert!(is_recorded_as_void(&setup, &question).await, "{tool}");
        // The new question has a decision of its own.
        let again = asked.accept("approval", json!({})).send(&client).await.asked();
        setup.decide(Verdict::Approve).await;
        assert_eq!(again.accept("approval", json!({})).send(&client).await.text(), "approved by grace", "{tool}");
        assert_eq!(setup.shop.refunds(), 1, "{tool}");
    }
}

#[tokio::test]
async fn a_call_that_goes_on_by_itself_tells_the_approver_as_well() {
    for tool in ["refund", "round", "steps"] {
        let Setup { shop, ledger, clock, server } = Setup::new();
        let client = Client::connect(server.clone(), Era::Modern, json!({})).await;
        assert!(client.call(tool, order()).await.is_tool_error());
        drop((client, server));
        let shop = shop.reworded();
        let server = builder(&shop, ledger.clone(), &clock).build().unwrap();
        let setup = Setup { shop, ledger, clock, server };
        let question = setup.question().await;
        assert_eq!(question.message, "Refund 900 of o-1?", "the people see what was asked");
        setup.decide(Verdict::Approve).await;
        until(tool, async || void(&setup, &question).await.is_some()).await;
        assert_eq!(setup.shop.refunds(), 0, "{tool}");
    }
}

#[tokio::test]
async fn a_decision_that_did_not_count_does_not_count_after_a_rollback_either() {
    let (setup, asked, question) = approved_before_a_deploy("refund", Way::Desk).await;
    let client = visitor(&setup.server).await;
    assert!(!asked.accept("approval", json!({})).send(&client).await.is_asked());
    assert!(void(&setup, &question).await.is_some());
    let back = Shop { refunds: setup.shop.refunds.clone(), ..Shop::new() };
    let back = builder(&back, setup.ledger.clone(), &setup.clock).build().unwrap();
    let client = visitor(&back).await;
    let ended = asked.accept("approval", json!({})).send(&client).await;
    assert!(!ended.response().to_string().contains("approved by"), "{:?}", ended.response());
    assert_eq!(setup.shop.refunds(), 0);
}

#[tokio::test]
async fn a_decision_on_what_was_asked_is_not_void() {
    for tool in super::callers::SHAPES {
        let setup = Setup::new();
        let client = visitor(&setup.server).await;
        let asked = client.call(tool, order()).await.asked();
        let question = setup.question().await;
        setup.decide(Verdict::Approve).await;
        assert_eq!(asked.accept("approval", json!({})).send(&client).await.text(), "approved by grace", "{tool}");
        assert_eq!(void(&setup, &question).await, None, "{tool}");
    }
}
