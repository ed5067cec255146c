//! Configurations from public issue threads, each with the verdict it deserves; the thread is named at every case.

mod case;
mod launchers;
mod memory;
mod planning;
mod scope;
mod speed;
mod validity;
