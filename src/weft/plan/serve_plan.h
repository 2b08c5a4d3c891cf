// plan_serving: what a layout of a served model holds and how fast it answers: memory, latency and throughput by
// batch.
#pragma once
#include <optional>

#include "weft/plan/hardware.h"
#include "weft/plan/serve_time.h"
#include "weft/plan/served_rank.h"

namespace weft::plan {

// What drafts `tokens` tokens a step, of which the first is accepted with probability `acceptance`, and each next
// one behind those that did likewise.
struct DraftPlan {
  std::optional<ServedModel> model;  // none: the served model's own part for that (ModelConfig::mtp_layers)
  int64_t draft_tokens = 4;
  double acceptance = 0.7;
};

struct ServeRequest {
  ServedModel model;
  Cluster cluster;
  Stack stack;
  int64_t input_len = 1024, output_len = 256;  // tokens of a prompt and of its answer
  int64_t block_tokens = 16;                   // these as ContinuousOptions has them
  std::optional<RowFormat> kv_format = {};
  int64_t tokens_per_step = 2048, max_running = 256;
  bool packs_weights = false;  // as the CPU's products like them
  std::optional<DraftPlan> draft;
  int64_t drafts_without_model = 0;  // in one step, from what a text said before
  RowFormat kv_format_of(const ServedModel& m) const { return kv_format.value_or(RowFormat{m.dtype}); }
  const ServedModel* draft_model() const { return draft && draft->model ? &*draft->model : nullptr; }
  // As the large one's are.
  void set_blocks(const BlockChoice& blocks) {
    model.blocks = blocks;
    if (draft && draft->model) draft->model->blocks = blocks;
  }
  int64_t num_draft_tokens() const { return draft ? draft->draft_tokens : drafts_without_model; }
};

// A step in which `batch` answers get a token each.
struct ServeBatch {
  int64_t batch = 0;        // of one replica
  ServeTime step;           // seconds from one token of an answer to the next
  double tokens_per_s = 0;  // of all answers of all replicas together
  double user_tokens_per_s = 0;
  // As above while as many prompts are read beside as answers end: what goes on for ever. Where tokens_per_step has
  // no room for both, fewer answers than `batch` are under way.
  ServeTime loaded;
  double loaded_batch = 0, loaded_tokens_per_s = 0;
};

// Of one replica. Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023.
struct Speculation {
  int64_t batch = 0;
  double draft_s = 0, verify_s = 0;  // all draft tokens of a step; the large model's step over them
  double tokens_per_step = 0;        // expected, of an answer
  double gain = 0;                   // times as fast as a token a step
};

struct ServePlan {
  MeshShape mesh;  // of a replica
  int replicas = 1;
  std::vector<ServedMemory> stages;      // of the first rank of each, with a draft on the last; cache: for all tokens
  int fullest = 0;                       // the stage that has least room for the cache
  double capacity_bytes = 0;             // of a device, without what is reserved
  double missing_bytes = 0;              // for the cache of one answer; 0: it fits
  int64_t cache_bytes_per_token = 0;     // over all ranks of a replica
  int64_t cache_tokens = 0;              // that a replica has room for
  int64_t sequences = 0;                 // answers at their longest, at a time
  double ttft_s = 0;                     // of a prompt alone: until its first token
  ServeTime prefill;                     // all of its steps
  std::vector<ServeBatch> batches;       // 1, 2, 4, ... and as many as fit
  std::vector<Speculation> speculation;  // likewise, where a step has room for the draft tokens

  bool fits() const { return missing_bytes <= 0; }
  int num_devices() const { return mesh.size() * replicas; }
  // Of `batches`, that with most tokens a second, prompts among them.
  const ServeBatch& saturated() const;
};

// What the first rank of each stage holds with a cache of so many blocks and states, after the largest of its steps:
// as many answers as may run, and a prompt in all other rows. The draft is on the last stage.
std::vector<ServedMemory> serving_memory(const ServeRequest& request, const MeshShape& mesh, int64_t num_blocks,
                                         int64_t num_states);

// No formula for it: ranks of the program run the steps over meta memory (ServedRank) and the cost model takes what
// they did. Computed are only sums over steps: a prompt of many steps is as many as the mean of its first and its
// last whole one, and an answer's token takes what it takes half-way through the answer. A mixture's rows are dealt
// to its experts in turn, so that few rows read a few more experts than real ones would. Throws UsageError for a mesh
// that cannot serve the model and for lengths that it has no context for.
ServePlan plan_serving(const ServeRequest& request, const MeshShape& mesh, int replicas = 1);

}  // namespace weft::plan
