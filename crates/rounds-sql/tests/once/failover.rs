//! A failover that loses the last commits: an effect and its row are lost together.

use rounds_testkit::{Postgres, PostgresAddress};
use serde_json::json;

use crate::Server;

#[test]
fn an_effect_that_a_failover_loses_is_lost_with_its_row_and_runs_again() {
    let mut primary = Postgres::with(&["fsync=off"]);
    let database = primary.database();
    let address = PostgresAddress::of(&primary);
    let mut replica = primary.replica();
    let mut server = Server::start(&address.url(&database));
    let transfer =
        |server: &mut Server| server.call("transfer", json!({})).asked().accept("confirm", json!({"confirm": true}));
    let kept = transfer(&mut server);
    assert_eq!(server.send(&kept).text(), "moved 1");
    primary.wait_for_replica();
    primary.stall_replication();
    let lost = transfer(&mut server);
    assert_eq!(server.send(&lost).text(), "moved 2");
    primary.kill();
    replica.promote();
    address.lead_to(&replica);

    let count = |what: &str| replica.ask(&database, &format!("SELECT count(*) FROM {what}"));
    assert_eq!((count("moves").as_str(), count("rounds_effects").as_str()), ("1", "1"));
    assert_eq!(server.persistently(&kept), "moved 1");
    assert_eq!(server.persistently(&lost), "moved 2", "it runs again, because nothing of it is left");
    assert_eq!((count("moves").as_str(), count("rounds_effects").as_str()), ("2", "2"));
    assert_eq!(replica.ask(&database, "SELECT sum(balance) FROM accounts"), "0");
}
