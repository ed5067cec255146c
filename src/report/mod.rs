//! What people read: the plan in a terminal, tables, timelines, pages.

pub mod check;
pub mod difference;
pub mod explain;
pub mod hosts;
pub mod html;
pub mod infeasible;
pub mod layout;
pub mod number;
pub mod pareto;
pub mod profile;
pub mod rank_order;
pub mod shares;
pub mod simulation;
pub mod study_text;
pub mod summary;
pub mod table;
pub mod timeline;
pub mod timeline_svg;
pub mod timeline_text;
pub mod timeline_trace;
pub mod validation_flags;
pub mod validation_json;
pub mod validation_kernels;
pub mod validation_text;
