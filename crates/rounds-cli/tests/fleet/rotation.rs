//! Keys that are replaced while flows are open.

use crate::{
    Fleet,
    call::{Call, METRIC, is_frozen, text},
};

const SHAPES: [&str; 4] = ["weather_e", "weather_h", "weather_i", "weather_asked"];

impl Fleet {
    /// Opens a flow of each shape, and returns the legs that answer them.
    async fn opened(&self) -> Vec<Call> {
        let mut answers = Vec::new();
        for shape in SHAPES {
            let call = Call::weather(shape);
            answers.push(call.metric(&self.send(&call).await));
        }
        answers
    }

    async fn go_on(&self, answers: &[Call], when: &str) {
        for answer in answers {
            assert_eq!(text(&self.send(answer).await), METRIC, "{when}: {answer:?}");
        }
    }
}

on_every_store!(no_flow_is_lost_while_a_key_takes_the_place_of_another);

async fn no_flow_is_lost_while_a_key_takes_the_place_of_another(fleet: Fleet) {
    let of_the_old_key_alone = fleet.opened().await;
    for (times, keys) in [&[1, 2][..], &[2, 1]].into_iter().enumerate() {
        fleet.keys.write(keys);
        for at in 0..3 {
            // While only some instances have read the file: every instance can open what another one has sealed.
            let answers = fleet.opened().await;
            fleet.signal(at, "HUP");
            fleet.log(at).says("read the keys again", times + 1).await;
            fleet.go_on(&answers, &format!("{keys:?} at {at}")).await;
        }
    }
    let before_the_old_key_went = fleet.opened().await;
    let left_open = fleet.opened().await;
    fleet.go_on(&of_the_old_key_alone[..2], "the new key seals").await;
    fleet.keys.write(&[2]);
    for at in 0..3 {
        fleet.signal(at, "HUP");
        fleet.log(at).says("2 open flows use a key that the new ring does not have", 1).await;
    }
    fleet.go_on(&of_the_old_key_alone[2..], "the key stays as long as open flows use it").await;
    for at in 0..3 {
        fleet.signal(at, "HUP");
        fleet.log(at).says("read the keys again", 3).await;
    }
    fleet.go_on(&before_the_old_key_went, "sealed with the new key").await;
    for answer in &of_the_old_key_alone {
        assert!(is_frozen(&fleet.send(answer).await), "its key was removed");
    }

    // A file that is not usable changes nothing.
    fleet.keys.write(&[]);
    for at in 0..3 {
        fleet.signal(at, "HUP");
        fleet.log(at).says("the keys were not changed", 2).await;
    }
    fleet.go_on(&left_open, "with an empty file").await;
}
