//! The routing DAG of a fabric.
