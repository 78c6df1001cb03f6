use proptest::prelude::*;

use super::*;
use crate::optimizer::words::terms;

type Tool = (String, String);

fn tools(all: &[(&str, &str)]) -> Vec<Tool> {
    all.iter().map(|(name, description)| ((*name).to_owned(), (*description).to_owned())).collect()
}

fn add(index: &mut Index, tools: &[Tool]) -> Rows {
    index.add(tools.iter().map(|(name, description)| (name.as_str(), description.as_str(), description.as_str())))
}

fn search<'a>(index: &Index, rows: &'a Rows, query: &str) -> Vec<&'a str> {
    index.search(rows, &terms(query, &[]))
}

#[test]
fn what_fits_best_comes_first() {
    let mut index = Index::default();
    let rows = add(
        &mut index,
        &tools(&[
            ("github_create_issue", "Create a new issue in a repository"),
            ("github_list_issues", "List issues in a repository, optionally filtered"),
            ("slack_send_message", "Send a message to a channel"),
            ("weather_forecast", "The forecast of the weather for a city"),
        ]),
    );
    assert_eq!(search(&index, &rows, "creating issues").first(), Some(&"github_create_issue"));
    assert_eq!(search(&index, &rows, "forecasts"), ["weather_forecast"], "words are found by their stems");
    assert_eq!(search(&index, &rows, "repositories"), ["github_create_issue", "github_list_issues"]);
    assert_eq!(search(&index, &rows, "nothing like that"), [""; 0]);
}

#[test]
fn a_short_text_counts_more_than_a_long_one_and_names_decide_a_draw() {
    let mut index = Index::default();
    let long = format!("alpha {}", "filler ".repeat(200));
    let rows = add(&mut index, &tools(&[("long", &long), ("b", "alpha"), ("a", "alpha")]));
    assert_eq!(search(&index, &rows, "alpha"), ["a", "b", "long"]);
}

#[test]
fn a_word_that_few_have_counts_more() {
    let mut index = Index::default();
    let rows = add(&mut index, &tools(&[("a", "common"), ("b", "common"), ("c", "common"), ("d", "rare")]));
    assert_eq!(search(&index, &rows, "common rare").first(), Some(&"d"));
}

#[test]
fn a_document_lives_as_long_as_a_view_that_has_it() {
    let mut index = Index::default();
    let (one, other) = (tools(&[("a", "alpha"), ("b", "beta")]), tools(&[("b", "beta"), ("c", "gamma")]));
    let (first, second) = (add(&mut index, &one), add(&mut index, &other));
    assert_eq!(index.len(), 3, "one document for both views");
    index.release(&first);
    assert_eq!(index.len(), 2);
    assert_eq!(search(&index, &second, "beta"), ["b"]);
    index.release(&second);
    assert_eq!(index.len(), 0);
    assert!(index.postings.is_empty() && index.by_digest.is_empty());
}

#[test]
fn a_changed_tool_is_another_document_and_keeps_the_vectors_of_the_others() {
    let mut index = Index::default();
    let before = add(&mut index, &tools(&[("a", "alpha"), ("b", "beta")]));
    for (id, _) in index.without_vector(10) {
        index.set_vector(id, [1.0_f32].into());
    }
    let now = add(&mut index, &tools(&[("a", "alpha"), ("b", "changed")]));
    index.release(&before);
    let missing: Vec<_> = index.without_vector(10).into_iter().map(|(_, text)| text).collect();
    assert_eq!(missing, [Arc::<str>::from("name: b description: changed")]);
    assert_eq!(index.vectors(&now).len(), 1);
}

/// As a bench would: an index of 1,000 tools is made, changed by one tool and searched a hundred times. Nothing is said about its time.
#[test]
fn a_thousand_tools_are_indexed_changed_and_searched() {
    let tool =
        |number: usize| (format!("server{}_tool_{number}", number % 20), format!("Does thing {number} to a resource"));
    let mut all: Vec<Tool> = (0..1_000).map(tool).collect();
    let mut index = Index::default();
    let mut rows = add(&mut index, &all);
    for number in 0..100 {
        all[number] = tool(1_000 + number);
        let changed = add(&mut index, &all);
        index.release(&rows);
        rows = changed;
        assert_eq!(index.len(), 1_000);
        let wanted = format!("{}", 500 + number);
        assert_eq!(search(&index, &rows, &wanted), [all[500 + number].0.as_str()]);
    }
    assert_eq!(search(&index, &rows, "resource").len(), 1_000);
}

fn any_tools() -> impl Strategy<Value = Vec<Tool>> {
    let word = "[abc]{1,2}";
    let description = prop::collection::vec(word, 0..6).prop_map(|words| words.join(" "));
    prop::collection::btree_map("[xyz]{1,2}", description, 0..12).prop_map(|tools| tools.into_iter().collect())
}

proptest! {
    /// What a client finds is a matter of its own view: neither what others see nor what was there before changes it.
    #[test]
    fn a_search_depends_on_the_view_alone(mine in any_tools(), others in any_tools(), query in "[abc]{1,2}( [abc]{1,2}){0,3}") {
        let mut alone = Index::default();
        let expected = add(&mut alone, &mine);
        let mut shared = Index::default();
        let before = add(&mut shared, &others);
        let rows = add(&mut shared, &mine);
        prop_assert_eq!(search(&shared, &rows, &query), search(&alone, &expected, &query));
        shared.release(&before);
        prop_assert_eq!(search(&shared, &rows, &query), search(&alone, &expected, &query));
        shared.release(&rows);
        prop_assert_eq!(shared.len(), 0);
        prop_assert!(shared.postings.is_empty());
    }

    /// Every tool that has a word of the search is found once, and no other.
    #[test]
    fn exactly_what_has_a_word_is_found(mine in any_tools(), query in "[abc]{1,2}( [abc]{1,2}){0,3}") {
        let mut index = Index::default();
        let rows = add(&mut index, &mine);
        let wanted = terms(&query, &[]);
        let has = |(name, description): &&Tool| stems(name).into_iter().chain(stems(description)).any(|word| wanted.contains(&word));
        let mut found = search(&index, &rows, &query);
        found.sort_unstable();
        prop_assert_eq!(found, mine.iter().filter(has).map(|(name, _)| name.as_str()).collect::<Vec<_>>());
    }
}
