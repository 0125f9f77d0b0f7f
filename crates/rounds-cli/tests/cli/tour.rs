//! The tour.

use crate::process::{rounds, run};

#[tokio::test]
async fn the_tour_needs_no_argument_and_shows_a_call_a_forgery_and_the_way_on() {
    let tour = run(&[]).await.printed();
    for line in [
        r#"client  call_tool deploy {"env":"prod"}"#,
        r#"person  is asked "Deploy to prod?" and answers {"action":"accept","content":{"confirm":true}}"#,
        "legs: 2, questions: 1, handler runs: 1",
        r#"client  tools/call {"arguments":{"env":"prod"},"name":"deploy"}"#,
        "server  input_required, and this leg is over",
        r#"question  confirm: "Deploy to prod?""#,
        r#"answer    confirm: {"action":"accept","content":{"confirm":true}}"#,
        "code      -32602",
        r#"message   "Invalid or expired requestState""#,
        r#"data      {"reason":"invalid_request_state"}"#,
        "log     Tampered: the state was changed on its way",
        "legs: 3, handler runs: 1",
        "serve --http 127.0.0.1:8000",
    ] {
        assert!(tour.contains(line), "{line} is not in\n{tour}");
    }
    let completed = r#"server  [{"text":"deployed to prod","type":"text"}]"#;
    assert_eq!(tour.matches(completed).count(), 2, "by its own loop and by hand");
}

#[tokio::test]
async fn the_table_has_a_row_for_each_shape_and_era_and_names_the_footgun() {
    let tour = run(&["tour"]).await.printed();
    let row = |shape: &str, client: &str| -> Vec<String> {
        let words = tour.lines().map(|line| line.trim_start_matches([' ', '!']).split_whitespace());
        let row = words.map(Iterator::collect::<Vec<_>>).find(|words| words.starts_with(&[shape, client]));
        let row = row.unwrap_or_else(|| panic!("no row for {shape} and {client} in\n{tour}"));
        row[2..].iter().map(|word| (*word).to_owned()).collect()
    };
    for (shape, client, asked, runs, audited) in [
        ("weather_e", "modern", "1", "2", "1"),
        ("weather_e", "legacy", "0", "1", "1"),
        ("weather_f", "modern", "1", "2", "1"),
        ("weather_f", "legacy", "0", "1", "1"),
        ("weather_h", "modern", "1", "1", "1"),
        ("weather_h", "legacy", "1", "1", "1"),
        ("weather_i", "modern", "1", "2", "1"),
        ("weather_i", "legacy", "1", "1", "1"),
        ("weather_naive", "modern", "1", "2", "2"),
        ("weather_naive", "legacy", "0", "1", "1"),
    ] {
        let row = row(shape, client);
        assert_eq!(row[..3], [asked, runs, audited], "{shape} {client}");
        let bytes: usize = row[3].parse().unwrap();
        assert_eq!(bytes > 0, client == "modern", "{shape} {client}");
        assert_eq!(row[4..].join(" "), "Weather in Tokyo: 22°C, partly cloudy.");
    }
    let marked: Vec<_> = tour.lines().filter(|line| line.starts_with(" ! ")).collect();
    assert!(matches!(marked[..], [row] if row.starts_with(" ! weather_naive  modern")), "{marked:?}");
    assert!(tour.contains("weather_naive is the footgun: one call, audited 2 times"), "{tour}");
    assert_eq!(tour.matches("is the footgun").count(), 1, "{tour}");
    for shape in ["weather_h", "weather_i"] {
        assert!(tour.contains(&format!("{shape} asks the legacy client as well")), "{tour}");
    }
    assert_eq!(tour.matches("as well").count(), 2, "{tour}");
}

#[tokio::test]
async fn the_tour_fits_a_terminal_and_has_no_colour_in_a_pipe() {
    let tour = run(&[]).await.printed();
    assert!(!tour.contains('\x1b'), "{tour}");
    assert!(tour.lines().count() <= 60, "{} lines", tour.lines().count());
    for line in tour.lines().filter(|line| !line.contains(env!("CARGO_BIN_EXE_rounds"))) {
        assert!(line.chars().count() <= 100, "{line}");
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
