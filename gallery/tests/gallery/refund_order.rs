//! A refund: the questions depend on the order, and the refund runs at most once.

use rounds::Era;
use serde_json::{Value, json};

use super::{ERAS, Visit, accept, cancel, decline};

const SCOPE: &str = "Refund everything, or one of mug, tote, stickers?";
const RESTOCK: &str = "Put mug, tote, stickers back on the shelf?";

fn refund(order: &str) -> Value {
    json!({"name": "refund_order", "arguments": {"order_id": order, "reason": "broken"}})
}

fn scope(scope: &str) -> Value {
    accept(json!({"scope": scope}))
}

fn restock(restock: bool) -> Value {
    accept(json!({"restock": restock}))
}

#[tokio::test]
async fn the_scope_gives_the_amount_and_only_a_yes_restocks() {
    for era in ERAS {
        for (answers, asked, text) in [
            (
                vec![scope("everything"), restock(true)],
                &[SCOPE, RESTOCK],
                "Refunded 4800 of ORD-7002 (broken), restocked.",
            ),
            (vec![scope("everything"), restock(false)], &[SCOPE, RESTOCK], "Refunded 4800 of ORD-7002 (broken)."),
            (vec![scope("everything"), decline()], &[SCOPE, RESTOCK], "Refunded 4800 of ORD-7002 (broken)."),
            (vec![scope("everything"), cancel()], &[SCOPE, RESTOCK], "Refunded 4800 of ORD-7002 (broken)."),
            (
                vec![scope("mug"), restock(true)],
                &[SCOPE, "Put mug back on the shelf?"],
                "Refunded 1800 of ORD-7002 (broken), restocked.",
            ),
            (
                vec![scope("tote"), restock(false)],
                &[SCOPE, "Put tote back on the shelf?"],
                "Refunded 2400 of ORD-7002 (broken).",
            ),
            (
                vec![scope("stickers"), decline()],
                &[SCOPE, "Put stickers back on the shelf?"],
                "Refunded 600 of ORD-7002 (broken).",
            ),
        ] {
            let stage = Visit::new(era).await;
            let played = stage.play_in_turn("tools/call", refund("ORD-7002"), answers).await;
            assert_eq!(played.messages(), asked, "{era:?}");
            assert_eq!(played.leg.text(), text, "{era:?}");
            assert!(!played.leg.is_tool_error());
            assert_eq!((stage.audited("refund_order"), stage.events.runs("refund_order")), (1, 1), "{era:?}");
        }
    }
}

#[tokio::test]
async fn an_order_of_one_digital_line_leaves_nothing_to_ask() {
    for era in ERAS {
        let stage = Visit::new(era).await;
        let played = stage.play_in_turn("tools/call", refund("ORD-7001"), []).await;
        assert_eq!(played.messages(), [] as [&str; 0]);
        assert_eq!(played.leg.text(), "Refunded 1500 of ORD-7001 (broken).", "{era:?}");
        assert_eq!(stage.audited("refund_order"), 1);
    }
}

#[tokio::test]
async fn a_refused_scope_and_what_there_is_not_end_the_call_without_a_refund() {
    for era in ERAS {
        for (order, answers, text) in [
            ("ORD-7002", vec![decline()], format!("The user declined: {SCOPE}")),
            ("ORD-7002", vec![cancel()], format!("The user cancelled: {SCOPE}")),
            ("ORD-7002", vec![scope("hat")], "There is no hat in ORD-7002.".to_owned()),
            ("ORD-7003", vec![], "There is no order ORD-7003.".to_owned()),
        ] {
            let stage = Visit::new(era).await;
            let played = stage.play_in_turn("tools/call", refund(order), answers).await;
            assert_eq!(played.leg.text(), text, "{era:?}");
            assert!(played.leg.is_tool_error());
            assert_eq!((stage.audited("refund_order"), stage.events.runs("refund_order")), (0, 0), "{era:?}");
        }
    }
}

#[tokio::test]
async fn the_last_leg_sent_again_gets_the_same_reply_and_no_further_refund() {
    let stage = Visit::new(Era::Modern).await;
    let asked = stage.client.request("tools/call", refund("ORD-7002")).await.asked();
    let scoped = asked.accept("scope", json!({"scope": "mug"}));
    let last = scoped.send(&stage.client).await.asked().accept("restock", json!({"restock": true}));
    for _ in ["the answer", "its retry"] {
        assert_eq!(last.send(&stage.client).await.text(), "Refunded 1800 of ORD-7002 (broken), restocked.");
    }
    asked.accept("scope", json!({"scope": "everything"})).send(&stage.client).await.frozen();
    assert_eq!(stage.audited("refund_order"), 1);
}
