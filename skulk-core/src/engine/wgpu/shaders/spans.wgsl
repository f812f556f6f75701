// Helper: which rows belong together, and in which pages lie the positions that they see?
//
// A span is consecutive rows of one sequence. In the table, which the host makes, each has five words from
// p.spans on, as below; page numbers are from p.pages on. `table` is bound by who uses this. After kept.wgsl.

struct Span {
    // Which of the dispatch's spans it is.
    index: u32,
    // The first row, and how many there are.
    row: u32,
    rows: u32,
    // The first row's position.
    start: u32,
    // The first block of PAGE positions that has a page, and where its number is.
    first_block: u32,
    pages: u32,
}

fn span_at(index: u32) -> Span {
    let at = p.spans + 5u * index;
    return Span(index, table[at], table[at + 1u], table[at + 2u], table[at + 3u], table[at + 4u]);
}

fn page_of(span: Span, position: u32) -> u32 {
    return table[p.pages + span.pages + position / PAGE - span.first_block];
}
