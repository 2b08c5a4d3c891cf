// ServeEngine: a model behind an engine on the ranks of a mesh, with what the API needs to talk with it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "command.h"
#include "forward_ranks.h"
#include "weft/pretrained/encoders/text_encoder_source.h"
#include "weft/serve/api/served_model.h"
#include "weft/serve/constrain/constraint_factory.h"
#include "weft/serve/continuous_engine.h"
#include "weft/serve/remote/meeting.h"

namespace weft::app {

// In place of a draft model's path: the model's own part that predicts a token further on.
constexpr const char* kOwnDraft = "mtp";

struct EngineOptions {
  ForwardOptions forward;
  std::string name, template_file, tool_format, reasoning_format = "auto", sampling = "model", pooling = "model";
  std::string reranker;  // empty: there is none
  std::string rerank_tokens = "yes,no";
  ContinuousOptions engine;
  std::vector<std::string> adapters;  // "name=folder"
  std::string adapter_folder, draft;
  bool without_prefixes = false;
  bool drafts_itself() const { return draft == kOwnDraft; }
  bool has_draft_model() const { return !draft.empty() && !drafts_itself(); }
  int64_t memory_limit = 0;  // bytes of a device, or of this machine; 0: what is free
  std::string device_map = "near", far_folder = ".";
  int num_models = 1;  // that share the memory of this machine, replicas among them
  Output output;
  void add_to(CLI::App& command);
};

// Throws UsageError where a model that is to draft itself has no part for that.
void require_own_draft(const ModelConfig& config, const std::string& model);

// "name=folder", as `option` has it. Throws UsageError.
std::pair<std::string, std::string> split_name(const char* option, const std::string& text);

// Whether a folder holds an encoder of texts, which makes vectors and scores of them.
bool is_text_encoder(const std::string& model);

// What the API needs of a model beside an engine.
class ModelText {
 public:
  // The source outlives this.
  ModelText(const EngineOptions& options, const ModelSource& source);
  ModelText(const EngineOptions& options, const TextEncoderSource& source);
  // Outlived by this and the engine.
  api::ServedModel served_by(Engine& engine);

 private:
  void set_vectors(const EngineOptions& options, EmbeddingRule rule, int64_t width);

  const std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<constrain::ConstraintFactory> constraints_;
  api::ServedModel model_;
};

// The rank of a replica that speaks.
struct Driver {
  MeshEngine& engine;
  remote::ReplicaPlace place;
  bool is_alone;                        // the only rank of its replica
  std::vector<remote::Socket> sockets;  // to other replicas of the job, as remote::meet gives them
};

// Serves on every rank of the mesh. on_driver is called on the driver, of each replica; it runs the
// engine, and the others serve until that stops.
using OnDriver = std::function<void(Driver& driver)>;
void run_engine(const EngineOptions& options, const OnDriver& on_driver);

}  // namespace weft::app
