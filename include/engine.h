#pragma once
/// The engine of Tandem, in namespace tandem::engine: graphs, ops and kernels, Programs
/// and the passes that make them, backends, ranks and timelines.
#include <tandem/tandem.h>

// Graphs
#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/graph_edit.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/op.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/mapped.h>
#include <tandem/ops/varied.h>

// Passes
#include <tandem/autograd/differentiate.h>
#include <tandem/autograd/vmap.h>
#include <tandem/pipeline/schedule_file.h>
#include <tandem/plan/build.h>
#include <tandem/plan/mixed_precision.h>

// Programs
#include <tandem/core/schedule/program.h>
#include <tandem/core/schedule/program_json.h>
#include <tandem/core/schedule/verify.h>
#include <tandem/memory/placement.h>

// Runs
#include <tandem/core/runtime/backend.h>
#include <tandem/core/runtime/host.h>
#include <tandem/core/runtime/profile.h>
#include <tandem/core/runtime/session.h>
#include <tandem/core/runtime/sim_backend.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/mpi_comm.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/train/non_finite.h>
