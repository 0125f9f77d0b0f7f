//! Legs that reach another instance than the one where their handler waits.

use std::{sync::Arc, time::Duration};

use rounds::{
    Ask, BuildError, FlowError, KeyRing, Limits, Rounds,
    ledger::MemoryLedger,
    observe::{Event, Observe, Outcome, Refusal, Station},
    test::{Client, Clock, Events},
    time::BoxFuture,
};
use rounds_testkit::{Fleet, Hub, in_time};
use serde_json::json;

use super::{Count, Tool, Units};

/// Two instances of one server, `a` and `b`, that share keys, a ledger and a hub.
struct Pair<H> {
    a: Rounds<H>,
    b: Rounds<H>,
    hub: Hub,
    clock: Clock,
    events: [Events; 2],
}

impl<F, Fut> Pair<Tool<F>>
where
    F: Fn(Ask) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<String, FlowError>> + Send + 'static,
{
    fn of(tool: F) -> Self {
        Self::new(tool, None, Duration::ZERO)
    }

    /// The same, with another observer at instance `a`.
    fn observed(tool: F, observer: Option<Clumsy>) -> Self {
        Self::new(tool, observer, Duration::ZERO)
    }

    /// The same, with a grace period for a handler whose client is gone.
    fn with_grace(tool: F, grace: Duration) -> Self {
        Self::new(tool, None, grace)
    }

    fn new(tool: F, observer: Option<Clumsy>, grace: Duration) -> Self {
        let fleet = Fleet::new();
        let events = [Events::new(), Events::new()];
        let instance = |name: &str, events: &Events, observer: Option<Clumsy>| {
            let builder = Rounds::builder(Tool(tool.clone()));
            let builder = match observer {
                Some(observer) => builder.observe(observer),
                None => builder,
            };
            let builder = fleet.join(builder).relay(fleet.hub.at(name)).limits(Limits::default().with_grace(grace));
            builder.observe(events.clone()).build().unwrap()
        };
        let (a, b) = (instance("a", &events[0], observer), instance("b", &events[1], None));
        Self { a, b, hub: fleet.hub, clock: fleet.clock, events }
    }

    async fn clients(&self) -> (Client, Client) {
        (Client::modern(self.a.clone()).await, Client::modern(self.b.clone()).await)
    }

    /// Waits until an instance has handed its leg over and waits for the reply.
    async fn until_routed(&self, instance: usize) {
        self.events[instance].until(1, |station| matches!(station, Station::Routed { .. })).await;
    }
}

/// An observer that panics when a handler is resumed.
struct Clumsy;

impl Observe for Clumsy {
    fn event(&self, event: &Event<'_>) {
        assert!(*event.station != Station::Resumed, "the observer panics");
    }
}

/// A handler that has its answer, and then works until it is released.
#[derive(Clone, Default)]
struct Work {
    begun: Count,
    dropped: Count,
    release: Arc<tokio::sync::Notify>,
}

impl Work {
    fn tool(&self) -> impl Fn(Ask) -> BoxFuture<'static, Result<String, FlowError>> + Clone + Send + Sync + use<> {
        let work = self.clone();
        move |ask: Ask| {
            let Self { begun, dropped, release } = work.clone();
            Box::pin(async move {
                let _dropped = dropped.on_drop();
                let units: Units = ask.form("Which units?").await?;
                begun.up();
                release.notified().await;
                Ok(format!("{units:?}"))
            })
        }
    }
}

async fn two_questions(ask: Ask) -> Result<String, FlowError> {
    let units: Units = ask.form("Which units?").await?;
    let sure = ask.confirm(format!("{units:?}, sure?")).await?;
    Ok(format!("{units:?} {sure}"))
}

#[tokio::test]
async fn a_leg_that_lands_elsewhere_gets_the_next_question_and_the_result() {
    let fleet = Pair::of(two_questions);
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let answer = units.accept("units", json!({"units": "metric"}));
    let sure = answer.send(&b).await.asked();
    assert_eq!(sure.message("confirm"), "Metric, sure?");
    assert_eq!(sure.accept("confirm", json!({"confirm": true})).send(&b).await.text(), "Metric true");
    assert_eq!((fleet.events[0].runs("weather"), fleet.events[1].runs("weather")), (1, 0));
    assert!(fleet.events[1].stations().contains(&Station::Routed { to: "a".to_owned() }));

    // Single use holds at every instance, and so does the same reply.
    for client in [&a, &b] {
        assert_eq!(answer.send(client).await.asked().state(), sure.state());
        units.accept("units", json!({"units": "imperial"})).send(client).await.frozen();
        assert_eq!(sure.accept("confirm", json!({"confirm": true})).send(client).await.text(), "Metric true");
    }
    assert_eq!((fleet.a.waiting_calls(), fleet.b.waiting_calls()), (0, 0));
}

#[tokio::test]
async fn nobody_is_connected_to_the_instance_of_a_routed_leg() {
    let fleet = Pair::of(|ask: Ask| async move {
        let here = ask.peer().is_some();
        let _: Units = ask.form("Which units?").await?;
        Ok(format!("{here} {}", ask.peer().is_some()))
    });
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    assert_eq!(units.accept("units", json!({"units": "metric"})).send(&b).await.text(), "true false");
}

#[tokio::test]
async fn an_owner_that_is_gone_is_known_at_once() {
    let fleet = Pair::of(two_questions);
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    fleet.hub.wires().inboxes.remove("a");
    units.accept("units", json!({"units": "metric"})).send(&b).await.frozen();
    assert_eq!(fleet.events[1].refusals(), [Refusal::FrameGone]);
}

#[tokio::test]
async fn an_owner_that_says_nothing_is_given_up_after_three_seconds() {
    let fleet = Pair::of(two_questions);
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    fleet.hub.wires().deaf.push("a".to_owned());
    let sleepers = fleet.clock.sleepers();
    let leg = units.accept("units", json!({"units": "metric"})).start(&b).await;
    for _ in 0..3 {
        fleet.clock.until_asleep(sleepers + 1).await;
        fleet.clock.advance(Duration::from_millis(1001));
    }
    in_time(leg.finish()).await.frozen();
}

#[tokio::test]
async fn an_errand_that_got_lost_twice_is_sent_again() {
    let fleet = Pair::of(two_questions);
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    fleet.hub.wires().deaf.push("a".to_owned());
    let sleepers = fleet.clock.sleepers();
    let leg = units.accept("units", json!({"units": "metric"})).start(&b).await;
    fleet.clock.until_asleep(sleepers + 1).await;
    fleet.clock.advance(Duration::from_millis(1001));
    fleet.clock.until_asleep(sleepers + 1).await;
    fleet.hub.wires().deaf.clear();
    fleet.clock.advance(Duration::from_millis(1001));
    assert_eq!(in_time(leg.finish()).await.asked().keys(), ["confirm"]);
}

/// As after a restart: the errand is lost with the instance, and the handler still waits.
#[tokio::test]
async fn a_relay_that_goes_away_with_an_errand_costs_a_retry_and_nothing_else() {
    let fleet = Pair::of(two_questions);
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let answer = units.accept("units", json!({"units": "metric"}));
    fleet.hub.wires().deaf.push("a".to_owned());
    let sleepers = fleet.clock.sleepers();
    let leg = answer.start(&b).await;
    fleet.clock.until_asleep(sleepers + 1).await;
    fleet.hub.wires().away = true;
    fleet.clock.advance(Duration::from_millis(1001));
    assert_eq!(in_time(leg.finish()).await.error()["data"]["reason"], "retry");

    fleet.hub.wires().deaf.clear();
    fleet.hub.wires().away = false;
    assert_eq!(in_time(answer.send(&b)).await.asked().keys(), ["confirm"]);
    assert_eq!(fleet.events[0].runs("weather"), 1);
}

#[tokio::test]
async fn an_owner_whose_report_gets_lost_reports_again() {
    let work = Work::default();
    let fleet = Pair::of(work.tool());
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    fleet.hub.wires().held.insert("b".to_owned(), vec![]);
    let leg = units.accept("units", json!({"units": "metric"})).start(&b).await;
    work.begun.reaches(1).await;
    work.release.notify_one();
    fleet.hub.until(|wires| wires.held["b"].len() == 1).await;
    fleet.hub.wires().held.clear();
    fleet.clock.advance(Duration::from_millis(1001));
    assert_eq!(in_time(leg.finish()).await.text(), "Metric");
    assert!(fleet.events[0].stations().contains(&Station::Replayed));
    assert_eq!(work.begun.get(), 1);
}

#[tokio::test]
async fn an_owner_that_takes_its_time_says_that_it_is_at_it() {
    let (begun, release) = (Count::default(), Arc::new(tokio::sync::Notify::new()));
    let fleet = Pair::of({
        let (begun, release) = (begun.clone(), release.clone());
        move |ask: Ask| {
            let (begun, release) = (begun.clone(), release.clone());
            async move {
                let units: Units = ask.form("Which units?").await?;
                begun.up();
                release.notified().await;
                Ok(format!("{units:?}"))
            }
        }
    });
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let leg = units.accept("units", json!({"units": "metric"})).start(&b).await;
    begun.reaches(1).await;
    for _ in 0..10 {
        let carried = fleet.hub.wires().carried.len();
        fleet.clock.advance(Duration::from_millis(701));
        while fleet.hub.wires().carried.len() == carried {
            tokio::task::yield_now().await;
        }
    }
    release.notify_one();
    assert_eq!(leg.finish().await.text(), "Metric");
}

#[tokio::test]
async fn what_an_owner_replied_before_it_went_is_still_there() {
    let fleet = Pair::of(two_questions);
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let answer = units.accept("units", json!({"units": "metric"}));
    let sure = answer.send(&a).await.asked();
    fleet.hub.wires().inboxes.remove("a");
    assert_eq!(answer.send(&b).await.asked().state(), sure.state());
    sure.accept("confirm", json!({"confirm": true})).send(&b).await.frozen();
}

#[tokio::test]
async fn a_leg_that_is_cancelled_elsewhere_ends_its_handler() {
    let (begun, dropped) = (Count::default(), Count::default());
    let fleet = Pair::of({
        let (begun, dropped) = (begun.clone(), dropped.clone());
        move |ask: Ask| {
            let (begun, dropped) = (begun.clone(), dropped.clone());
            async move {
                let _dropped = dropped.on_drop();
                let _: Units = ask.form("Which units?").await?;
                begun.up();
                std::future::pending().await
            }
        }
    });
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let answer = units.accept("units", json!({"units": "metric"}));
    let leg = answer.start(&b).await;
    begun.reaches(1).await;
    leg.cancel().await;
    dropped.reaches(1).await;
    fleet.events[1].until(1, |station| *station == Station::Ended(Outcome::Cancelled)).await;
    answer.send(&a).await.frozen();
    assert_eq!(begun.get(), 1);
}

#[tokio::test]
async fn a_handler_whose_leg_is_cancelled_elsewhere_has_its_grace_period_and_its_reply_is_recorded() {
    let work = Work::default();
    let fleet = Pair::with_grace(work.tool(), Duration::from_secs(5));
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let answer = units.accept("units", json!({"units": "metric"}));
    for ends in [true, false] {
        let units = a.call("weather", json!({})).await.asked();
        let answer = units.accept("units", json!({"units": "metric"}));
        let leg = answer.start(&b).await;
        work.begun.reaches(if ends { 1 } else { 2 }).await;
        let sleepers = fleet.clock.sleepers();
        leg.cancel().await;
        fleet.events[1].until(if ends { 1 } else { 2 }, |station| *station == Station::Ended(Outcome::Cancelled)).await;
        // The instance that the leg reached no longer listens for signs of life, and the owner has begun the grace
        // period.
        in_time(fleet.clock.until_asleep(sleepers)).await;
        if ends {
            work.release.notify_one();
            work.dropped.reaches(1).await;
            assert_eq!(answer.send(&a).await.text(), "Metric");
        } else {
            fleet.clock.advance(Duration::from_millis(4999));
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(work.dropped.get(), 1);
            fleet.clock.advance(Duration::from_millis(1));
            work.dropped.reaches(2).await;
            answer.send(&a).await.frozen();
        }
    }
    work.release.notify_one();
    assert_eq!(answer.send(&b).await.text(), "Metric", "another call is not affected");
}

#[tokio::test]
async fn a_cancellation_that_comes_right_behind_its_errand_counts() {
    let work = Work::default();
    let fleet = Pair::of(work.tool());
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    fleet.hub.wires().held.insert("a".to_owned(), vec![]);
    let leg = units.accept("units", json!({"units": "metric"})).start(&b).await;
    fleet.hub.until(|wires| wires.held["a"].len() == 1).await;
    leg.cancel().await;
    fleet.hub.until(|wires| wires.held["a"].len() == 2).await;
    let (inbox, held) = {
        let mut wires = fleet.hub.wires();
        (wires.inboxes["a"].clone(), wires.held.remove("a").unwrap())
    };
    for message in held {
        inbox.deliver(&message);
    }
    work.dropped.reaches(1).await;
}

#[tokio::test]
async fn an_errand_that_arrives_twice_is_cancelled_all_the_same() {
    let work = Work::default();
    let fleet = Pair::of(work.tool());
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let leg = units.accept("units", json!({"units": "metric"})).start(&b).await;
    work.begun.reaches(1).await;
    let (inbox, errand) = {
        let wires = fleet.hub.wires();
        (wires.inboxes["a"].clone(), wires.carried[0].1.clone())
    };
    inbox.deliver(&errand);
    // The tasks that it started have made all the progress they can.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    leg.cancel().await;
    work.dropped.reaches(1).await;
}

#[tokio::test]
async fn a_relay_on_which_nothing_moves_holds_nothing_up() {
    let work = Work::default();
    let fleet = Pair::of(work.tool());
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let answer = units.accept("units", json!({"units": "metric"}));
    fleet.hub.wires().stuck = 1;
    let sleepers = fleet.clock.sleepers();
    let leg = answer.start(&b).await;
    in_time(fleet.clock.until_asleep(sleepers + 1)).await;
    fleet.clock.advance(Duration::from_millis(2001));
    assert_eq!(in_time(leg.finish()).await.error()["data"]["reason"], "retry");

    let leg = answer.start(&b).await;
    work.begun.reaches(1).await;
    fleet.hub.wires().stuck = 1;
    fleet.clock.advance(Duration::from_millis(701));
    fleet.hub.until(|wires| wires.stuck == 0).await;
    work.release.notify_one();
    assert_eq!(in_time(leg.finish()).await.text(), "Metric");
}

#[tokio::test]
async fn an_owner_that_cannot_be_heard_and_is_at_work_is_waited_for() {
    let work = Work::default();
    let fleet = Pair::of(work.tool());
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let leg = units.accept("units", json!({"units": "metric"})).start(&b).await;
    work.begun.reaches(1).await;
    fleet.hub.wires().deaf.push("b".to_owned());
    for errands in [2, 3] {
        fleet.clock.advance(Duration::from_millis(1001));
        fleet.hub.until(|wires| wires.carried.len() == errands).await;
    }
    fleet.clock.advance(Duration::from_millis(1001));
    in_time(fleet.events[1].until(1, |station| *station == Station::Waiting)).await;
    work.release.notify_one();
    assert_eq!(in_time(leg.finish()).await.text(), "Metric");
    assert_eq!(work.begun.get(), 1);
}

/// An attacker who can write to the relay has kept a message that the owner sent when it was alive.
#[tokio::test]
async fn an_old_sign_of_life_that_is_sent_again_keeps_nobody_waiting() {
    let work = Work::default();
    let fleet = Pair::of(work.tool());
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let leg = units.accept("units", json!({"units": "metric"})).start(&b).await;
    work.begun.reaches(1).await;
    fleet.clock.advance(Duration::from_millis(701));
    fleet.hub.until(|wires| wires.carried.len() == 2).await;
    let (inbox, (to, sign)) = {
        let wires = fleet.hub.wires();
        (wires.inboxes["b"].clone(), wires.carried[1].clone())
    };
    assert_eq!(to, "b");
    fleet.hub.wires().inboxes.remove("a");
    fleet.hub.wires().deaf.push("b".to_owned());
    let ended = in_time(leg.finish());
    tokio::pin!(ended);
    for _ in 0..4 {
        inbox.deliver(&sign);
        // Until the waiting leg has received it.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        fleet.clock.advance(Duration::from_millis(701));
    }
    ended.await.frozen();
}

/// It has claimed the round, and its lease has not lapsed: no leg waits for that.
#[tokio::test]
async fn an_owner_that_dies_in_the_middle_of_a_leg_is_given_up_after_a_second() {
    let work = Work::default();
    let fleet = Pair::of(work.tool());
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let leg = units.accept("units", json!({"units": "metric"})).start(&b).await;
    work.begun.reaches(1).await;
    fleet.hub.wires().inboxes.remove("a");
    fleet.hub.wires().deaf.push("b".to_owned());
    fleet.clock.advance(Duration::from_millis(1001));
    in_time(leg.finish()).await.frozen();
}

#[tokio::test]
async fn a_panic_at_the_owner_is_told_where_the_leg_landed() {
    let fleet = Pair::observed(two_questions, Some(Clumsy));
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let answer = units.accept("units", json!({"units": "metric"}));
    let ended = in_time(answer.send(&b)).await;
    assert_eq!(ended.error()["message"], "the handler panicked");
}

#[tokio::test]
async fn a_relay_that_is_away_costs_a_retry_and_nothing_else() {
    let fleet = Pair::of(two_questions);
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let answer = units.accept("units", json!({"units": "metric"}));
    fleet.hub.wires().away = true;
    assert_eq!(answer.send(&b).await.error()["data"]["reason"], "retry");
    fleet.hub.wires().away = false;
    assert_eq!(answer.send(&b).await.asked().keys(), ["confirm"]);
}

#[tokio::test]
async fn no_message_can_be_forged_changed_or_sent_elsewhere() {
    let fleet = Pair::of(two_questions);
    let (a, b) = fleet.clients().await;
    let units = a.call("weather", json!({})).await.asked();
    let sure = units.accept("units", json!({"units": "metric"})).send(&b).await.asked();
    let (inboxes, carried) = {
        let wires = fleet.hub.wires();
        (wires.inboxes.clone(), wires.carried.clone())
    };
    assert_eq!(carried.len(), 2, "an errand and a report");
    fleet.events[0].clear();
    for (to, message) in &carried {
        for (name, inbox) in &inboxes {
            let mut changed = message.clone();
            *changed.last_mut().unwrap() ^= 1;
            inbox.deliver(&changed);
            inbox.deliver(&message[..message.len() / 2]);
            inbox.deliver(b"");
            if name != to {
                inbox.deliver(message);
            }
        }
        assert!(!message.windows(6).any(|window| window == b"metric"), "the message is sealed");
    }
    // An errand that is sent again unchanged is a retry like any other.
    fleet.until_routed(1).await;
    inboxes["a"].deliver(&carried[0].1);
    fleet.events[0].until(1, |station| *station == Station::Replayed).await;
    assert_eq!(fleet.events[0].stations(), [Station::Opened, Station::Replayed]);
    assert_eq!(sure.accept("confirm", json!({"confirm": true})).send(&b).await.text(), "Metric true");
}

#[test]
fn a_relay_needs_keys_and_a_ledger_that_the_fleet_shares() {
    let builder = || Rounds::builder(Tool(two_questions)).relay(Hub::default().at("a")).audience("fleet");
    let error = builder().build().unwrap_err();
    assert!(matches!(error, BuildError::RelayWithoutKeys), "{error}");
    let builder = || builder().keys(KeyRing::from_bytes([[7; 32]]).unwrap());
    let error = builder().build().unwrap_err();
    assert!(matches!(error, BuildError::RelayWithoutLedger), "{error}");
    let server = builder().ledger(MemoryLedger::new()).build().unwrap();
    let error = server.set_keys(&KeyRing::ephemeral()).unwrap_err();
    assert!(matches!(error, BuildError::RelayWithoutKeys), "{error}");
}
