// Helper: which rows belong together, and which states do they change?
//
// A run is consecutive rows of one sequence. In the table, which the host makes, each has six words from p.runs
// on, as below. `table` is bound by who uses this.

// No state: the sequence begins.
const NONE = 0xffffffffu;

struct Run {
    // The first row, and how many there are.
    row: u32,
    rows: u32,
    // The states before the first row and behind the last one.
    before: u32,
    behind: u32,
    // How many rows lead to another one that is kept, which may be none, and that one.
    mark_rows: u32,
    mark: u32,
}

fn run_at(index: u32) -> Run {
    let at = p.runs + 6u * index;
    return Run(table[at], table[at + 1u], table[at + 2u], table[at + 3u], table[at + 4u], table[at + 5u]);
}
