//! The tour.

use crate::process::{rounds, run};

#[tokio::test]
async fn the_tour_needs_no_argument_and_shows_a_call_a_forgery_and_the_way_on() {
    let tour = run(&[]).await.printed();
    for line in [
        r#"client  call_tool deploy {"env":"prod"}"#,
        r#"person  is asked "Deploy to prod?""#,
        r#"        and answers {"action":"accept","content":{"confirm":true}}"#,
        "legs: 2, questions: 1, handler runs: 1",
        r#"client  tools/call {"arguments":{"env":"prod"},"name":"deploy"}"#,
        "server  input_required, and this leg is over",
        r#"question  confirm: "Deploy to prod?""#,
        r#"answer    confirm: {"action":"accept","content":{"confirm":true}}"#,
        "code      -32602",
        r#"message   "Invalid or expired requestState""#,
        r#"data      {"reason":"invalid_request_state"}"#,
        "log     Tampered: the state was changed after it was sealed",
        "legs: 3, handler runs: 1",
        "server  task rounds.",
        r#"        input_required: confirm.1 asks "Deploy to prod?""#,
        r#"server  completed: [{"text":"deployed to prod","type":"text"}]"#,
        "serve --http 127.0.0.1:8000",
        "or open it in a browser, to see what waits and to try every tool:",
    ] {
        assert!(tour.contains(line), "{line} is not in\n{tour}");
    }
    let completed = r#"server  [{"text":"deployed to prod","type":"text"}]"#;
    assert_eq!(tour.matches(completed).count(), 2, "once by the client's loop and once by hand");
}

#[tokio::test]
async fn the_table_has_a_row_for_each_shape_with_both_eras_and_names_the_footgun() {
    let tour = run(&["tour"]).await.printed();
    for (shape, written, modern, legacy) in [
        ("weather_a", "guard, pushed", [1, 2, 1], [1, 2, 1]),
        ("weather_b", "thrown", [1, 2, 2], [1, 1, 1]),
        ("weather_c", "one branch", [1, 2, 1], [1, 1, 1]),
        ("weather_d", "two handlers", [1, 2, 1], [1, 1, 1]),
        ("weather_e", "guard", [1, 2, 1], [0, 1, 1]),
        ("weather_f", "guard, once", [1, 2, 1], [0, 1, 1]),
        ("weather_g", "steps", [1, 2, 1], [0, 1, 1]),
        ("weather_h", "linear", [1, 1, 1], [1, 1, 1]),
        ("weather_i", "durable", [1, 2, 1], [1, 1, 1]),
        ("weather_asked", "declared", [1, 1, 1], [1, 1, 1]),
        ("weather_naive", "guard, naive", [1, 2, 2], [0, 1, 1]),
    ] {
        let row = tour.lines().find_map(|line| line.trim_start_matches([' ', '!']).strip_prefix(shape));
        let row = row.unwrap_or_else(|| panic!("no row for {shape} in\n{tour}"));
        let numbers = row.trim_start().strip_prefix(written).unwrap_or_else(|| panic!("{row}"));
        let numbers: Vec<usize> = numbers.split_whitespace().map(|number| number.parse().unwrap()).collect();
        assert_eq!((&numbers[..3], &numbers[4..]), (&modern[..], &legacy[..]), "asked, runs, audited by {shape}");
        assert!(numbers[3] > 0, "{shape} gives a state to a modern client");
    }
    assert!(tour.contains("The result: Weather in Tokyo: 22°C, partly cloudy."), "{tour}");
    assert_eq!(tour.matches("The result:").count(), 1, "all shapes have the same result\n{tour}");
    assert!(tour.contains("Asked in both eras: a, b, c, d, h, i, asked."), "{tour}");
    assert!(tour.contains("A default for the legacy client: e, f, g, naive."), "{tour}");
}

#[tokio::test]
async fn the_footguns_are_marked_and_named_and_nothing_else_is() {
    let tour = run(&["tour"]).await.printed();
    let marked: Vec<_> = tour.lines().filter_map(|line| line.strip_prefix(" ! ")).collect();
    assert!(matches!(marked[..], [b, naive] if b.starts_with("weather_b ") && naive.starts_with("weather_naive ")));
    for shape in ["weather_b", "weather_naive"] {
        let words = format!("! {shape} is the footgun: one call of a modern client, audited 2 times.");
        assert!(tour.contains(&words), "{tour}");
    }
    assert_eq!(tour.matches("is the footgun").count(), 2, "{tour}");
}

#[tokio::test]
async fn the_tour_fits_a_terminal_and_has_no_colour_in_a_pipe() {
    let tour = run(&[]).await.printed();
    assert!(!tour.contains('\x1b'), "{tour}");
    assert!(tour.lines().count() <= 76, "{} lines", tour.lines().count());
    for line in tour.lines().filter(|line| !line.contains(env!("CARGO_BIN_EXE_rounds"))) {
        assert!(line.chars().count() <= 80, "{line}");
        assert_eq!(line, line.trim_end());
    }
}

#[tokio::test]
async fn a_reader_who_has_seen_enough_is_no_error() {
    let mut child = rounds(&["tour"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
