// ForwardRanks: a model that only runs forward, on the ranks of a mesh, for the commands that use one.
#pragma once
#include <functional>

#include "command.h"
#include "weft/pretrained/encoders/encoders.h"
#include "weft/pretrained/forward_model.h"

namespace weft::app {

struct ForwardOptions {
  std::string model, adapter, mesh, device, dtype = "fp32", quantize = "auto";
  int threads = 0;
  bool in_place = false;     // weights in blocks are not copied
  bool writes_texts = true;  // what the model is for, so that one which only scores them is refused
  WithMtp mtp = WithMtp::no;
  // Of the mesh's dp, each replica is run by itself, on devices of its own; where a launcher started the ranks, each
  // on ranks of its own, and `replica` is 0.
  int replica = 0, replicas = 1;
  void add_to(CLI::App& command);
};

// Ranks of the mesh, those of all replicas.
int ranks_of(const ForwardOptions& options);
// How many replicas of the whole model the mesh has; ranks of ep, which share one, are not among them.
int replicas_of(const ForwardOptions& options);
// What the model computes in. "auto": in 16 bits where its files have a matrix so and none in blocks; else in fp32.
DType dtype_of(const ForwardOptions& options, const ModelSource& source);
// Of every rank, as --device or --mesh says.
Device device_of(const ForwardOptions& options);

// Opens the model and calls body on every rank of the mesh, where ranks run; `source` is shared by all. `plan` is
// called before, with nothing allocated yet; it gives the mesh where --mesh is "auto", and which layers are far.
// job: the model's ranks; where a launcher started those of several replicas, of all of them, one after the other.
using ForwardBody = std::function<void(ForwardModel& model, const ModelSource& source, Communicator& job)>;
using ForwardPlan = std::function<void(const ModelSource& source, MeshShape& mesh, FarLayers& far)>;
void run_forward(const ForwardOptions& options, const ForwardBody& body, const ForwardPlan& plan = {});

// The same for a model that is no decoder, which body opens; there is a mesh. stored: what its matrices are stored
// in, for --dtype auto.
using EncoderBody = std::function<void(Context& context, const EncoderUse& use, Communicator& job)>;
void run_encoder(const ForwardOptions& options, const EncoderBody& body, DType stored = DType::f32);

// "1,2,3" or "1 2 3"; throws UsageError naming `option` and what is no token of the model.
std::vector<int32_t> parse_ids(const std::string& text, const char* option, int64_t vocab);

}  // namespace weft::app
