// EncoderEngine: vectors and scores of many texts in every step, of a model that reads each as a whole.
#pragma once
#include <deque>

#include "weft/models/text_encoder.h"
#include "weft/parallel/mesh.h"
#include "weft/serve/mesh_engine.h"

namespace weft {

struct EncoderOptions {
  int64_t context = 0;            // tokens of a text, at most the model's
  int64_t tokens_per_step = 256;  // a longer text has a step of its own
  int64_t max_running = 64;       // texts of one step
  int64_t max_waiting = 256;
};

// Texts lie one behind the other in a step, without any filling, and none sees another. Those of a smaller priority
// come first, then those that came first. When a step fails on a model of one rank, its requests end with the error
// and the others go on; on a mesh all end with it, and run() throws.
class EncoderEngine : public MeshEngine {
 public:
  // Every rank of the mesh makes one with the same options and runs it. What it is given outlives the engine. Throws
  // UsageError for a mesh with replicas: each has an engine of its own.
  EncoderEngine(TextEncoder& model, Context& context, const Mesh& mesh, const EncoderOptions& options);

  bool is_driver() const override { return mesh_.is_driver(); }

 private:
  bool take_requests() override;
  void step() override;
  void compute(std::span<const SequencePtr> texts);
  void embed(Sequence& s, std::span<const float> states);  // [tokens, H]
  void weigh(Sequence& s, std::span<const float> scores);  // [labels]
  void end(SequencePtr s, Finish finish);
  void end_all(FinishReason reason, const std::string& error) override;
  void tell_stats(size_t running);

  void follow() override;
  void stop_others() override;
  void send(const TextRows& rows, std::span<const SequencePtr> texts);
  void broadcast(std::vector<int32_t>& words);

  TextEncoder& model_;
  Context& context_;
  const Mesh& mesh_;
  const EncoderOptions options_;
  std::deque<SequencePtr> waiting_;
  std::vector<float> vector_;
  EngineStats totals_;
};

}  // namespace weft
