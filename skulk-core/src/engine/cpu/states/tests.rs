//! Do states go on in the same bits on every instruction set, and any number of threads?

use super::super::kernels::Kernels;
use super::*;
use crate::engine::Precision;
use crate::engine::conformance::{large_state_cases, state_cases};

#[test]
fn steps_threads_and_instruction_sets_give_the_same_bits() {
    for case in state_cases() {
        let expected = case.run(&Cpu::new(1, Precision::Fast).unwrap(), &[41], false);
        for kernels in Kernels::all() {
            let cpu = Cpu::with_kernels(kernels, 3, Precision::Fast).unwrap();
            for (steps, from_marks) in
                [(&[41][..], false), (&[1], false), (&[3, 1, 16], false), (&[7, 2], true)]
            {
                let found = case.run(&cpu, steps, from_marks);
                let same = found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same && found.len() == expected.len(), "{} {:?} {steps:?}", kernels.name, case.spec);
            }
        }
    }
}

#[test]
fn parts_of_a_row_alone_have_the_same_bits() {
    for case in large_state_cases() {
        let expected = case.run(&Cpu::new(1, Precision::Fast).unwrap(), &[5], false);
        for threads in [2, 3] {
            assert!(parts(&case.spec, 1, threads) > 1);
            let found = case.run(&Cpu::new(threads, Precision::Fast).unwrap(), &[1], false);
            let same = found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same && found.len() == expected.len(), "{threads} threads, {:?}", case.spec);
        }
    }
}
