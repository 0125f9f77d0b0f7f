//! A tool that knows nothing of the library asks clients of both eras.

use serde_json::json;

use super::{ERAS, Visit, accept, cancel, decline};

#[tokio::test]
async fn a_tool_written_with_rmcp_alone_asks_clients_of_both_eras() {
    let (sure, space) = (accept(json!({"sure": true})), accept(json!({"why": "space"})));
    for era in ERAS {
        for (answers, asked, text) in [
            (vec![sure.clone(), space.clone()], 2, "deleted, because space"),
            (vec![sure.clone(), decline()], 2, "kept"),
            (vec![accept(json!({"sure": false}))], 1, "kept"),
            (vec![decline()], 1, "kept"),
            (vec![cancel()], 1, "kept"),
        ] {
            let visit = Visit::new(era).await;
            let call = json!({"name": "delete_all", "arguments": {}});
            let played = visit.play_in_turn("tools/call", call, answers.clone()).await;
            assert_eq!(played.messages(), ["Delete everything?", "Why?"][..asked], "{era:?} {answers:?}");
            assert_eq!(played.leg.text(), text, "{era:?} {answers:?}");
            assert_eq!(visit.events.runs("delete_all"), 1);
        }
    }
}
