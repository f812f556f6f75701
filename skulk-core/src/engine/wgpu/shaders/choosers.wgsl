// Helper: which rows see chosen positions, and how many lie before them?
//
// In the table, which the host makes, each has three words from p.rows on: its number, how many positions it may choose
// from, and which of the page numbers from p.pages on is the first. `table` is bound by who uses this. After kept.wgsl.

struct Chooser {
    row: u32,
    positions: u32,
    pages: u32,
}

fn chooser_at(index: u32) -> Chooser {
    let at = p.rows + 3u * index;
    return Chooser(table[at], table[at + 1u], table[at + 2u]);
}

fn page_for(chooser: Chooser, position: u32) -> u32 {
    return table[p.pages + chooser.pages + position / PAGE];
}
