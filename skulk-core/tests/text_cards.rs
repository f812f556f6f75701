//! Does the guide say of every card of a text model whether it runs, and by which checkpoint that is shown?

use std::collections::BTreeMap;

use skulk::CardLibrary;
use skulk::card::ModelTask;

use crate::fixtures;

#[test]
fn the_guide_has_a_row_for_each_card_of_a_text_model() {
    let guide = std::fs::read_to_string(fixtures::root().join("docs/guide/text-cards.md")).unwrap();
    let rows: BTreeMap<_, _> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            (cells[0], (cells[1], cells[2], cells[3]))
        })
        .collect();
    let library = CardLibrary::builtin();
    let texts = library.iter().filter(|card| card.tasks.contains(&ModelTask::TextGeneration));
    let ids: Vec<_> = texts.map(|card| card.model_id.as_str()).collect();
    assert_eq!(ids.len(), rows.len());
    for id in ids {
        let (family, fixture, runs) = rows.get(id).unwrap_or_else(|| panic!("no row for {id}"));
        if fixture.starts_with('–') {
            assert!(runs.starts_with("no: "), "{id}");
            continue;
        }
        // The checkpoint is of the same family or, of wrappers and those that took its layers over, of a near one.
        let path = fixtures::path(fixture);
        assert!(path.join("reference.json").exists(), "{id}: {fixture}");
        assert!(!family.is_empty() && (*runs == "yes" || runs.starts_with("no: ")), "{id}: {runs}");
    }
}
