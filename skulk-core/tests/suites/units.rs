//! Do the functions behind the planner agree with the reference, one by one?
