//! Results and what is made of them.

pub mod html;
pub mod results;
pub mod svg;
