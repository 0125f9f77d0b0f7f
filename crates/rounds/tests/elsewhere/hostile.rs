//! People who should not decide, or not any more. Each is refused, and nothing is refunded.

use rounds::elsewhere::{DecideError, DecisionOutcome};

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
async fn a_decision_is_sealed_where_it_is_stored() {
    let (setup, ..) = asked().await;
    let question = setup.question().await;
    assert!(Flows::open(setup.ledger.clone(), &keys(), Some("shop")).is_ok());
    assert_eq!(question.arguments, Some(order()));
    let too_long = Verdict::deny_because("x".repeat(1 << 20));
    let refused = setup.server.flows().decide(&question, too_long, &grace(), Way::Desk).await.unwrap_err();
    assert!(matches!(refused, DecideError::TooLarge { .. }), "{refused}");
}
