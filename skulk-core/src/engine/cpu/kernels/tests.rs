//! Does every instruction set compute what the portable code does, bit for bit?
