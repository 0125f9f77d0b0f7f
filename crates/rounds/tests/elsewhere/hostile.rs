//! People who should not decide, or not any more. Each is refused, and nothing is refunded.

use rounds::{
    Era,
    elsewhere::{DecideError, DecisionOutcome},
};

use super::*;

async fn asked() -> (Setup, Client, rounds::test::AskedRound) {
    let setup = Setup::new();
    let client = visitor(&setup.server).await;
    let asked = client.call("refund", order()).await.asked();
    (setup, client, asked)
}

async fn refused(setup: &Setup, question: &QuestionElsewhere, who: &str) -> DecideError {
    let flows = setup.server.flows();
    let refused = flows.decide(question, Verdict::Approve, &Principal::new(who), Way::Desk).await.unwrap_err();
    assert_eq!(setup.shop.refunds(), 0);
    refused
}

#[tokio::test]
async fn a_person_without_the_role_neither_sees_nor_decides() {
    let (setup, ..) = asked().await;
    let question = setup.question().await;
    let flows = setup.server.flows();
    let may = flows.may_answer(&question, &Principal::new("clerk")).await.unwrap_err();
    assert!(may.to_string().contains("the role manager"), "{may}");
    assert!(matches!(refused(&setup, &question, "clerk").await, DecideError::NotAllowed { .. }));
    assert!(flows.may_answer(&question, &grace()).await.is_ok());
}

#[tokio::test]
async fn the_requester_does_not_decide_although_they_have_the_role() {
    let (setup, ..) = asked().await;
    let question = setup.question().await;
    assert_eq!(question.requester.as_deref(), Some("ada"));
    assert!(roles(&Principal::new("ada")).contains(&"manager".to_owned()));
    assert!(matches!(refused(&setup, &question, "ada").await, DecideError::NotAllowed { .. }));
}

#[tokio::test]
async fn a_second_decider_learns_who_was_first() {
    let (setup, client, asked) = asked().await;
    let question = setup.question().await;
    let flows = setup.server.flows();
    let deny = Verdict::deny_because("no");
    flows.decide(&question, deny, &Principal::new("alan"), Way::CommandLine).await.unwrap();
    let second = refused(&setup, &question, "grace").await;
    let DecideError::AlreadyDecided { decision } = second else { panic!("{second}") };
    assert_eq!((&*decision.by, decision.way), ("alan", Way::CommandLine));
    assert_eq!((decision.at, decision.shown), (rounds::time::Clock::now(&setup.clock).into(), question.shown));
    assert_eq!(decision.outcome, DecisionOutcome::Denied { reason: "no".to_owned() });
    assert_eq!(asked.accept("approval", json!({})).send(&client).await.text(), "denied by alan: no");
    let recorded = flows.questions(question.flow).await.unwrap();
    assert_eq!(recorded[0].decision.as_ref(), Some(&*decision), "it stays recorded after the flow has ended");
}

#[tokio::test]
async fn of_many_who_decide_at_once_one_does() {
    let (setup, client, asked) = asked().await;
    let question = setup.question().await;
    let (flows, alan) = (setup.server.flows(), Principal::new("alan"));
    let (grace, deny) = (grace(), Verdict::deny());
    let both = tokio::join!(
        flows.decide(&question, Verdict::Approve, &grace, Way::Desk),
        flows.decide(&question, deny, &alan, Way::Desk)
    );
    assert_eq!([both.0.is_ok(), both.1.is_ok()].iter().filter(|ok| **ok).count(), 1, "{both:?}");
    let text = asked.accept("approval", json!({})).send(&client).await.text();
    assert_eq!(text.starts_with("approved by grace"), both.0.is_ok(), "{text}");
}

#[tokio::test]
async fn a_question_of_another_flow_is_not_decided_with_this_one() {
    let (setup, client, first) = asked().await;
    let shown = setup.question().await;
    let second = client.call("refund", json!({"order": "o-2", "amount": 5000})).await.asked();
    let flows = setup.server.flows();
    let all = flows.list(FlowQuery::new().status(FlowStatus::Waiting)).await.unwrap().flows;
    let other = all.iter().find(|flow| flow.id != shown.flow).unwrap();
    // The link of the second flow, with what the first one has shown.
    let mut mixed = shown.clone();
    mixed.flow = other.id;
    assert!(matches!(refused(&setup, &mixed, "grace").await, DecideError::Changed));
    flows.decide(&shown, Verdict::Approve, &grace(), Way::Desk).await.unwrap();
    let held = client.start("tools/call", second.accept("approval", json!({})).into_parts().1).await;
    setup.hold_over(held).await.asked();
    assert_eq!(first.accept("approval", json!({})).send(&client).await.text(), "approved by grace");
    assert_eq!(setup.shop.refunds(), 1);
}

#[tokio::test]
async fn a_cancelled_call_withdraws_its_question() {
    let (setup, client, asked) = asked().await;
    let question = setup.question().await;
    setup.server.flows().cancel(question.flow, "a mistake").await.unwrap();
    let withdrawn = refused(&setup, &question, "grace").await;
    assert!(matches!(withdrawn, DecideError::Withdrawn { status: FlowStatus::Cancelled }), "{withdrawn}");
    asked.accept("approval", json!({})).send(&client).await.frozen();
}

#[tokio::test]
async fn a_person_who_has_lost_the_role_since_the_question_was_shown_does_not_decide() {
    let (shop, clock) = (Shop::new(), Clock::new());
    let is_manager = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let roles = {
        let is_manager = is_manager.clone();
        move |_: &Principal| if is_manager.load(Ordering::SeqCst) { vec!["manager".to_owned()] } else { vec![] }
    };
    let builder = builder(&shop, MemoryLedger::new(), &clock).elsewhere(Elsewhere::at(PAGE).roles(roles));
    let server = builder.build().unwrap();
    visitor(&server).await.call("refund", order()).await.asked();
    let (flows, question) = (server.flows(), open(&server.flows()).await);
    flows.may_answer(&question, &grace()).await.unwrap();
    is_manager.store(false, Ordering::SeqCst);
    let refused = flows.decide(&question, Verdict::Approve, &grace(), Way::Desk).await.unwrap_err();
    assert!(matches!(refused, DecideError::NotAllowed { .. }), "{refused}");
}

#[tokio::test]
async fn a_rule_of_the_servers_own_sees_the_person_and_the_question() {
    let (shop, clock, ledger) = (Shop::new(), Clock::new(), MemoryLedger::new());
    let rule = |who: &Principal, question: &QuestionElsewhere| {
        who.as_str() == "grace" && question.arguments.as_ref().is_some_and(|call| call["order"] == "o-1")
    };
    let builder = builder(&shop, ledger.clone(), &clock).elsewhere(Elsewhere::at(PAGE).rule("shift", rule));
    let server = builder.build().unwrap();
    let client = visitor(&server).await;
    let asked = client.call("ruled", order()).await.asked();
    let (flows, question) = (server.flows(), open(&server.flows()).await);
    let alan = flows.decide(&question, Verdict::Approve, &Principal::new("alan"), Way::Desk).await.unwrap_err();
    assert!(matches!(alan, DecideError::NotAllowed { .. }), "{alan}");
    // Another process has the keys, and neither the rules nor the roles of the server.
    let apart = Flows::open(ledger, &keys(), Some("shop")).unwrap();
    let unknown = apart.decide(&question, Verdict::Approve, &grace(), Way::CommandLine).await.unwrap_err();
    assert!(unknown.to_string().contains("the rule `shift` is in the code of the server"), "{unknown}");
    flows.decide(&question, Verdict::Approve, &grace(), Way::Desk).await.unwrap();
    assert_eq!(asked.accept("approval", json!({})).send(&client).await.text(), "approved by grace");
}

#[tokio::test]
async fn where_the_roles_are_not_known_the_error_says_where_to_decide() {
    let (setup, ..) = asked().await;
    let question = setup.question().await;
    let apart = Flows::open(setup.ledger.clone(), &keys(), Some("shop")).unwrap();
    let unknown = apart.decide(&question, Verdict::Approve, &grace(), Way::CommandLine).await.unwrap_err();
    assert!(matches!(unknown, DecideError::RolesElsewhere { .. }), "{unknown}");
    assert!(unknown.to_string().contains("only the server knows who has it"), "{unknown}");
}

#[tokio::test]
async fn a_decision_on_other_arguments_does_not_count_although_the_words_are_the_same() {
    let (setup, client, _) = asked().await;
    let shown = setup.question().await;
    client.call("refund", json!({"order": "o-1", "amount": 900, "note": "another call"})).await.asked();
    let flows = setup.server.flows();
    let all = flows.list(FlowQuery::new().status(FlowStatus::Waiting)).await.unwrap().flows;
    let other = all.iter().find(|flow| flow.id != shown.flow).unwrap();
    let same_words = flows.question(other.id, "approval").await.unwrap().unwrap();
    assert_eq!(same_words.message, shown.message);
    let mut mixed = shown;
    mixed.flow = other.id;
    assert!(matches!(refused(&setup, &mixed, "grace").await, DecideError::Changed));
}

#[tokio::test]
async fn a_question_waits_no_longer_than_the_register_allows() {
    let setup = Setup::new();
    let client = visitor(&setup.server).await;
    client.call("patient", order()).await.asked();
    let question = setup.question().await;
    let now: rounds::time::Timestamp = rounds::time::Clock::now(&setup.clock).into();
    assert_eq!(question.until.since(now), 30 * DAY);
}

#[tokio::test]
async fn a_handlers_own_error_that_looks_like_a_retry_ends_a_decided_call() {
    let setup = Setup::new();
    let client = Client::connect(setup.server.clone(), Era::Modern, json!({})).await;
    let reference = reference(&client.call("imitates", order()).await.text());
    setup.decide(Verdict::Approve).await;
    let failed = FlowQuery::new().status(FlowStatus::Failed);
    until("the end", async || setup.server.flows().list(failed.clone()).await.unwrap().flows.len() == 1).await;
    for _ in 0..2 {
        assert_eq!(fetch(&client, &reference).await.error()["message"], "not now");
        setup.clock.advance(DAY / 24);
        settle().await;
    }
    assert_eq!(setup.shop.refunds(), 1);
}

#[tokio::test]
async fn what_was_not_shown_is_not_approved() {
    let (setup, ..) = asked().await;
    let mut question = setup.question().await;
    question.shown = rounds::keys::Digest::from_bytes([7; 32]);
    assert!(matches!(refused(&setup, &question, "grace").await, DecideError::Changed));
}

#[tokio::test]
async fn an_approval_cannot_be_filled_in_like_a_form() {
    let (setup, ..) = asked().await;
    let question = setup.question().await;
    let verdict = Verdict::Answer(json!({"decision": "approved", "by": "grace", "at": 0}));
    let refused = setup.server.flows().decide(&question, verdict, &grace(), Way::Desk).await.unwrap_err();
    assert!(matches!(refused, DecideError::WrongVerdict { .. }), "{refused}");
}

#[tokio::test]
async fn a_decision_that_is_too_large_is_refused() {
    let (setup, ..) = asked().await;
    let question = setup.question().await;
    let too_long = Verdict::deny_because("x".repeat(1 << 20));
    let refused = setup.server.flows().decide(&question, too_long, &grace(), Way::Desk).await.unwrap_err();
    assert!(matches!(refused, DecideError::TooLarge { .. }), "{refused}");
}
