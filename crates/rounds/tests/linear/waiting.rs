//! What a handler can do while it waits: everything that it can do at other times.

use std::{
    future::poll_fn,
    sync::{Arc, mpsc},
    task::Poll,
    time::{Duration, SystemTime},
};

use rounds::{
    Ask, FlowError,
    observe::{Outcome, Station},
    test::Client,
    time::{BoxFuture, Clock},
};
use serde_json::json;
use tokio::sync::{Mutex, Notify, oneshot};

use super::{Count, Units, stage, stage_with, units, units_until};

#[tokio::test(start_paused = true)]
async fn a_timeout_beside_a_question_fires_on_time_and_the_result_waits_for_the_next_leg() {
    let ended = Count::default();
    let counted = ended.clone();
    let stage = stage(move |ask: Ask| {
        let ended = counted.on_drop();
        async move {
            let _ended = ended;
            let minute = Duration::from_secs(60);
            match tokio::time::timeout(minute, ask.form::<Units>("Which units?")).await {
                Ok(units) => Ok(format!("{:?}", units?)),
                Err(_) => Ok("no answer arrived".to_owned()),
            }
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let start = tokio::time::Instant::now();
    let asked = client.call("weather", json!({})).await.asked();
    ended.reaches(1).await;
    assert_eq!(start.elapsed().as_secs(), 60, "the timer fired while no leg was in flight");
    let late = asked.accept("units", json!({"units": "metric"})).send(&client).await;
    assert_eq!(late.text(), "no answer arrived");
    assert_eq!(stage.server.waiting_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_select_of_a_question_and_a_timer_takes_whichever_is_first() {
    let stage = stage(|ask: Ask| async move {
        tokio::select! {
            units = ask.form::<Units>("Which units?") => Ok(format!("{:?}", units?)),
            () = tokio::time::sleep(Duration::from_secs(60)) => Ok(format!("{:?}", ask.form::<Units>("Still there?").await?)),
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let quick = client.call("weather", json!({})).await.asked();
    assert_eq!(quick.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");

    let slow = client.call("weather", json!({})).await.asked();
    tokio::time::sleep(Duration::from_secs(61)).await;
    // The first question was withdrawn, so this answers nothing, and the second joins the next round.
    let next = slow.accept("units", json!({"units": "metric"})).send(&client).await.asked();
    assert_eq!(next.message("units"), "Still there?");
    assert_eq!(next.accept("units", json!({"units": "imperial"})).send(&client).await.text(), "Imperial");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutex_handed_over_while_parked_does_not_lock_up_another_tool() {
    let lock = Arc::new(Mutex::new(()));
    let taken = Count::default();
    let (shared, counted) = (lock.clone(), taken.clone());
    let stage = stage(move |ask: Ask| {
        let (lock, taken) = (shared.clone(), counted.clone());
        async move {
            let work = async {
                // The first task in line for the lock has to be polled to pass it on.
                drop(lock.lock().await);
                taken.up();
                Ok::<_, FlowError>(())
            };
            let (units, ()) = tokio::try_join!(ask.form::<Units>("Which units?").into_future(), work)?;
            Ok(format!("{units:?}"))
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let held = lock.clone().lock_owned().await;
    let asked = client.call("weather", json!({})).await.asked();
    drop(held);
    taken.reaches(1).await;
    let free = tokio::time::timeout(Duration::from_secs(30), lock.lock()).await;
    assert!(free.is_ok(), "the parked handler passed the lock on");
    drop(free);
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
}

#[tokio::test]
async fn questions_that_are_pending_together_are_one_round() {
    let stage = stage(|ask: Ask| async move {
        let (one, two) = tokio::join!(
            ask.form::<Units>("One?").key("one").into_future(),
            ask.form::<Units>("Two?").key("two").into_future(),
        );
        Ok(format!("{:?} {:?}", one?, two?))
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    assert_eq!(asked.keys(), ["one", "two"]);
    // Half of the answers: the other half is asked for again.
    let asked = asked.accept("one", json!({"one": "metric"})).send(&client).await.asked();
    assert_eq!(asked.keys(), ["two"]);
    let done = asked.accept("two", json!({"two": "imperial"})).send(&client).await;
    assert_eq!(done.text(), "Metric Imperial");
    assert_eq!(stage.events.runs("x"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spawned_task_can_ask() {
    let stage = stage(|ask: Ask| async move {
        let task = tokio::spawn(async move { units(ask).await });
        task.await.map_err(|error| FlowError::failed(error.to_string()))?
    });
    let client = Client::modern(stage.server.clone()).await;
    for _ in 0..50 {
        let asked = client.call("x", json!({})).await.asked();
        assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
    }
}

#[tokio::test]
async fn a_question_that_is_dropped_is_withdrawn() {
    let go_on = Arc::new(Notify::new());
    let withdrawn = Count::default();
    let (signal, counted) = (go_on.clone(), withdrawn.clone());
    let stage = stage(move |ask: Ask| {
        let (go_on, withdrawn) = (signal.clone(), counted.clone());
        async move {
            tokio::select! {
                _ = ask.form::<Units>("First?").key("first") => return Ok("answered".to_owned()),
                () = go_on.notified() => {}
            }
            withdrawn.up();
            Ok(format!("{:?}", ask.form::<Units>("Second?").key("second").await?))
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    go_on.notify_one();
    withdrawn.reaches(1).await;
    let asked = asked.accept("first", json!({"first": "metric"})).send(&client).await.asked();
    assert_eq!(asked.keys(), ["second"], "the answer to the first does not count for the second");
    assert_eq!(asked.accept("second", json!({"second": "imperial"})).send(&client).await.text(), "Imperial");
}

#[tokio::test]
async fn a_question_after_the_flow_has_ended_is_an_error_at_once() {
    let kept = Arc::new(std::sync::Mutex::new(None));
    let keep = kept.clone();
    let stage = stage(move |ask: Ask| {
        *keep.lock().unwrap() = Some(ask);
        async { Ok("done".to_owned()) }
    });
    let client = Client::modern(stage.server.clone()).await;
    assert_eq!(client.call("x", json!({})).await.text(), "done");
    let ask = kept.lock().unwrap().take().unwrap();
    let late = ask.form::<Units>("Anybody?").await;
    assert!(matches!(late, Err(FlowError::FlowEnded)), "{late:?}");
    assert!(ask.peer().is_none());
}

#[tokio::test]
async fn a_task_that_waits_when_the_flow_ends_learns_that_there_will_be_no_answer() {
    let learned = Count::default();
    let counted = learned.clone();
    let stage = stage(move |ask: Ask| {
        let learned = counted.clone();
        async move {
            let other = ask.clone();
            tokio::spawn(async move {
                if let Err(FlowError::FlowEnded) = other.form::<Units>("Unheard?").key("unheard").await {
                    learned.up();
                }
            });
            units(ask).await
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let mut asked = client.call("x", json!({})).await.asked();
    if !asked.keys().contains(&"unheard") {
        asked = asked.retry().send(&client).await.asked();
    }
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
    learned.reaches(1).await;
}

#[tokio::test]
async fn a_question_has_its_own_time_within_the_round() {
    let stage = stage(|ask: Ask| async move {
        match ask.form::<Units>("Quick?").within(Duration::from_secs(5)).await {
            Err(error @ FlowError::NotInTime { .. }) => Ok(error.to_string()),
            other => Ok(format!("{:?}", other?)),
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    assert_eq!(asked.result()["_meta"]["rounds/expiresInMs"], json!(5000));
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
    let asked = client.call("x", json!({})).await.asked();
    stage.clock.advance(Duration::from_secs(5));
    let late = asked.accept("units", json!({"units": "metric"})).send(&client).await;
    assert_eq!(late.text(), "The user did not answer in time: Quick?");
}

#[tokio::test]
async fn a_value_for_a_question_stands_in_for_its_time_and_not_for_a_no() {
    let five = Duration::from_secs(5);
    let stage = stage(move |ask: Ask| async move {
        Ok(format!("{:?}", ask.form("Quick?").within(five).or(Units::Imperial).await?))
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    assert_eq!(asked.decline("units").send(&client).await.text(), "The user declined: Quick?");
    let asked = client.call("x", json!({})).await.asked();
    stage.clock.advance(five);
    let late = asked.accept("units", json!({"units": "metric"})).send(&client).await;
    assert_eq!(late.text(), "Imperial");
    let legacy = Client::legacy(stage.server.clone()).await;
    let leg = legacy.start("tools/call", json!({"name": "x"})).await;
    let _unanswered = legacy.pushed().await.unwrap();
    stage.clock.until_asleep(1).await;
    stage.clock.advance(five);
    assert_eq!(leg.finish().await.text(), "Imperial");
}

#[tokio::test]
async fn an_argument_does_not_stand_in_for_time() {
    let five = Duration::from_secs(5);
    let stage = stage(move |ask: Ask| async move {
        Ok(format!("{:?}", ask.form::<Units>("Quick?").within(five).or_argument("units").await?))
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({"units": "metric"})).await.asked();
    stage.clock.advance(five);
    let late = asked.accept("units", json!({"units": "metric"})).send(&client).await;
    assert_eq!(late.text(), "The user did not answer in time: Quick?");
}

#[tokio::test]
async fn with_two_questions_each_is_told_its_own_time_also_when_it_is_told_again() {
    let stage = stage(|ask: Ask| async move {
        let _first: Units = ask.form("First?").key("first").await?;
        let quick = ask.form::<Units>("Quick?").key("quick").within(Duration::from_secs(5)).answer();
        let (quick, slow) = tokio::join!(quick, ask.form::<Units>("Slow?").key("slow").answer());
        Ok(format!("{} {:?}", quick.is_ok(), slow?))
    });
    let client = Client::modern(stage.server.clone()).await;
    let metric = |key: &str| json!({key: "metric"});
    let own = |asked: &rounds::test::AskedRound, key: &str| {
        asked.question(key)["params"]["_meta"]["rounds/expiresInMs"].clone()
    };
    let all = |asked: &rounds::test::AskedRound| asked.result()["_meta"]["rounds/expiresInMs"].clone();
    let first = client.call("x", json!({})).await.asked().accept("first", metric("first"));
    let asked = first.send(&client).await.asked();
    assert_eq!((all(&asked), own(&asked, "quick"), own(&asked, "slow")), (json!(600_000), json!(5_000), json!(null)));
    stage.clock.advance(Duration::from_secs(2));
    let told = first.send(&client).await.asked();
    assert_eq!((all(&told), own(&told, "quick")), (json!(598_000), json!(3_000)), "a retry gets the same questions");
    // An answer that does not fit is asked for again, without more time.
    let asked = asked.accept("quick", json!({"quick": 1})).send(&client).await.asked();
    assert_eq!((all(&asked), own(&asked, "quick"), own(&asked, "slow")), (json!(600_000), json!(3_000), json!(null)));
    stage.clock.advance(Duration::from_secs(3));
    let done = asked.accept("quick", metric("quick")).accept("slow", metric("slow")).send(&client).await;
    assert_eq!(done.text(), "false Accepted(Metric)");
}

#[tokio::test]
async fn a_patient_question_lets_its_round_live_longer() {
    let hour = Duration::from_secs(30 * 60);
    let stage =
        stage(move |ask: Ask| async move { Ok(format!("{:?}", ask.form::<Units>("Slow?").within(hour).await?)) });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    stage.clock.advance(Duration::from_secs(29 * 60));
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_frame_resumed_twice_at_once_runs_once() {
    let after = Count::default();
    let counted = after.clone();
    let stage = stage(move |ask: Ask| {
        let after = counted.clone();
        async move {
            let units = units(ask).await?;
            after.up();
            tokio::task::yield_now().await;
            Ok(units)
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let retry = asked.accept("units", json!({"units": "metric"}));
    let mut legs = Vec::new();
    for _ in 0..20 {
        legs.push(retry.start(&client).await);
    }
    for leg in legs {
        assert_eq!(leg.finish().await.text(), "Metric");
    }
    assert_eq!(after.get(), 1);
    let claims = stage.events.stations().into_iter().filter(|station| matches!(station, Station::Claimed { .. }));
    assert_eq!(claims.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leg_that_comes_while_the_handler_is_polled_gets_it_when_that_is_done() {
    let (go, polled) = (Arc::new(Notify::new()), Count::default());
    let (release, released) = mpsc::channel();
    let (gone, polling, released) = (go.clone(), polled.clone(), Arc::new(Mutex::new(released)));
    let stage = stage(move |ask: Ask| {
        let (go, polling, released) = (gone.clone(), polling.clone(), released.clone());
        async move {
            let answer = ask.form::<Units>("Which units?").into_future();
            tokio::pin!(answer);
            tokio::select! {
                biased;
                _ = &mut answer => panic!("there is no answer yet"),
                () = go.notified() => {
                    polling.up();
                    released.try_lock().unwrap().recv().unwrap();
                }
            }
            Ok(format!("{:?}", answer.await?))
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    go.notify_one();
    polled.reaches(1).await;
    let leg = asked.accept("units", json!({"units": "metric"})).start(&client).await;
    let is_claimed = || stage.events.stations().iter().any(|station| matches!(station, Station::Claimed { .. }));
    while !is_claimed() {
        tokio::task::yield_now().await;
    }
    assert!(!stage.events.stations().contains(&Station::Resumed));
    release.send(()).unwrap();
    assert_eq!(leg.finish().await.text(), "Metric");
}

#[tokio::test]
async fn what_wakes_a_handler_in_the_poll_in_which_it_asks_is_not_lost() {
    let again = Count::default();
    let counted = again.clone();
    let stage = stage(move |ask: Ask| {
        let again = counted.clone();
        async move {
            let mut polls = 0;
            let beside = poll_fn(|cx| {
                polls += 1;
                if polls < 5 {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                again.up();
                Poll::Ready(())
            });
            let (units, ()) = tokio::join!(units(ask), beside);
            units
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    again.reaches(1).await;
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
}

#[tokio::test]
async fn a_handler_that_is_never_at_rest_is_answered_all_the_same() {
    let stage = stage(|ask: Ask| async move {
        let restless = poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        tokio::select! {
            biased;
            units = units(ask) => units,
            () = restless => unreachable!(),
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
}

#[tokio::test]
async fn a_thread_that_no_runtime_knows_can_wake_a_handler_that_waits() {
    let (woken, (tell, told)) = (Count::default(), oneshot::channel());
    let (counted, told) = (woken.clone(), Arc::new(Mutex::new(Some(told))));
    let stage = stage(move |ask: Ask| {
        let (woken, told) = (counted.clone(), told.clone());
        async move {
            let told = told.lock().await.take().unwrap();
            let beside = async {
                told.await.unwrap();
                woken.up();
            };
            let (units, ()) = tokio::join!(units(ask), beside);
            units
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    std::thread::spawn(move || tell.send(()).unwrap()).join().unwrap();
    woken.reaches(1).await;
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
}

/// A clock on which every wait has passed at once.
struct Hasty;

impl Clock for Hasty {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1)
    }

    fn sleep(&self, _duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

#[tokio::test]
async fn a_round_that_is_over_before_its_handler_waits_ends_it() {
    let dropped = Count::default();
    let stage = stage_with(units_until(&dropped), |builder| builder.clock(Hasty));
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    assert_eq!((dropped.get(), stage.server.waiting_calls()), (1, 0));
    assert!(stage.events.stations().contains(&Station::Ended(Outcome::Expired)));
    asked.accept("units", json!({"units": "metric"})).send(&client).await.frozen();
}

#[tokio::test]
async fn the_peer_and_progress_are_those_of_the_leg_in_flight() {
    let (go, seen) = (Arc::new(Notify::new()), Count::default());
    let (gone, saw) = (go.clone(), seen.clone());
    let stage = stage(move |ask: Ask| {
        let (go, seen) = (gone.clone(), saw.clone());
        async move {
            ask.progress(1.0, Some(2.0), Some("before".to_owned())).await;
            let answer = ask.form::<Units>("Which units?").into_future();
            tokio::pin!(answer);
            tokio::select! {
                biased;
                _ = &mut answer => panic!("there is no answer yet"),
                () = go.notified() => assert!(ask.peer().is_none(), "while it waits there is no leg in flight"),
            }
            seen.up();
            let units = answer.await?;
            assert!(ask.peer().is_some());
            ask.progress(2.0, Some(2.0), Some("after".to_owned())).await;
            Ok(format!("{units:?}"))
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let with_token = |token: &str| json!({"name": "x", "arguments": {}, "_meta": {"progressToken": token}});
    let asked = client.request("tools/call", with_token("first")).await.asked();
    go.notify_one();
    seen.reaches(1).await;
    let retry = asked.accept("units", json!({"units": "metric"})).with("_meta", json!({"progressToken": "second"}));
    assert_eq!(retry.send(&client).await.text(), "Metric");
    let progress: Vec<_> = client
        .notifications()
        .into_iter()
        .filter(|note| note["method"] == "notifications/progress")
        .map(|note| (note["params"]["progressToken"].clone(), note["params"]["message"].clone()))
        .collect();
    assert_eq!(progress, [(json!("first"), json!("before")), (json!("second"), json!("after"))]);
}

#[tokio::test]
async fn the_oldest_wait_is_that_of_whoever_has_waited_longest_for_this_answer() {
    let stage = stage(|ask: Ask| async move {
        let units: Units = ask.form("Which units?").await?;
        let sure = ask.confirm("Sure?").await?;
        Ok(format!("{units:?} {sure}"))
    });
    let (server, clock) = (&stage.server, &stage.clock);
    let client = Client::modern(server.clone()).await;
    assert_eq!(server.oldest_wait(), None);
    let first = client.call("weather", json!({})).await.asked();
    clock.advance(Duration::from_secs(5));
    let second = client.call("weather", json!({})).await.asked();
    clock.advance(Duration::from_secs(2));
    assert_eq!(server.oldest_wait(), Some(Duration::from_secs(7)));

    // The first has its answer, and waits for the next from now on.
    let first = first.accept("units", json!({"units": "metric"})).send(&client).await.asked();
    assert_eq!(server.oldest_wait(), Some(Duration::from_secs(2)));
    let second = second.accept("units", json!({"units": "metric"})).send(&client).await.asked();
    assert_eq!(server.oldest_wait(), Some(Duration::ZERO));
    for asked in [first, second] {
        asked.accept("confirm", json!({"confirm": true})).send(&client).await.text();
    }
    assert_eq!(server.oldest_wait(), None);
}
