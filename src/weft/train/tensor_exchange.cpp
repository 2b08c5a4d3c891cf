// TensorExchange: runs with a header each, sorted by receiver.
#include "weft/train/tensor_exchange.h"

#include <cstring>
#include <numeric>

namespace weft {
namespace {

constexpr int64_t kFlushBytes = int64_t(256) << 20;  // of whole tensors: bounds what is under way

struct Header {
  int64_t tensor, first, count;
};
constexpr size_t kHeaderWords = sizeof(Header) / sizeof(float);

void append(std::vector<float>& packet, const Header& header, const float* values) {
  const size_t at = packet.size();
  packet.resize(at + kHeaderWords + size_t(header.count));
  std::memcpy(packet.data() + at, &header, sizeof header);
  std::memcpy(packet.data() + at + kHeaderWords, values, size_t(header.count) * sizeof(float));
}

}  // namespace

std::vector<int> spread(std::span<const uint64_t> bytes, int ranks) {
  const uint64_t total = std::max<uint64_t>(1, std::reduce(bytes.begin(), bytes.end(), uint64_t(0)));
  std::vector<int> receivers;
  uint64_t before = 0;
  for (const uint64_t size : bytes) {
    const double middle = double(before) + double(size) / 2;
    receivers.push_back(std::min(ranks - 1, int(middle * ranks / double(total))));
    before += size;
  }
  return receivers;
}

TensorExchange::TensorExchange(Communicator& world) : world_(world), packets_(size_t(world.size())) {}

void TensorExchange::add(int receiver, const Tensor& whole, int64_t numel, EachRun each_run) {
  const bool is_mine = receiver == world_.rank();
  const auto number = int64_t(open_.size());
  open_.push_back({is_mine ? whole : Tensor{}, 0});
  each_run([&](const Tensor& here, int64_t first, bool is_counted) {
    if (!is_counted || here.numel() == 0) return;
    if (is_mine)
      receive(number, first, {here.data<float>(), size_t(here.numel())});
    else
      append(packets_[size_t(receiver)], {number, first, here.numel()}, here.data<float>());
  });
  bytes_ += numel * int64_t(sizeof(float));
  if (bytes_ >= kFlushBytes) flush();
}

void TensorExchange::receive(int64_t tensor, int64_t first, std::span<const float> values) {
  check(tensor >= 0 && tensor < int64_t(open_.size()) && open_[size_t(tensor)].whole, "no tensor {} is awaited here",
        tensor);
  Open& open = open_[size_t(tensor)];
  check(first >= 0 && first + int64_t(values.size()) <= open.whole.numel(), "elements {} to {} of a tensor of {}",
        first, first + int64_t(values.size()), open.whole.numel());
  std::memcpy(open.whole.data<float>() + first, values.data(), values.size_bytes());
  open.elements += int64_t(values.size());
}

void TensorExchange::flush() {
  bytes_ = 0;
  const int size = world_.size();
  if (size == 1) return;
  const std::vector<int64_t> ones(size_t(size), 1);
  const Tensor sent = memory_.empty(DType::i64, {size}), coming = memory_.empty(DType::i64, {size});
  for (int r = 0; r < size; ++r) sent.data<int64_t>()[r] = int64_t(packets_[size_t(r)].size());
  world_.all_to_all(coming, ones, sent, ones);

  const std::span<const int64_t> out_counts(coming.data<int64_t>(), size_t(size));
  const std::span<const int64_t> in_counts(sent.data<int64_t>(), size_t(size));
  const Tensor in = memory_.empty(DType::f32, {std::reduce(in_counts.begin(), in_counts.end())});
  const Tensor out = memory_.empty(DType::f32, {std::reduce(out_counts.begin(), out_counts.end())});
  float* to = in.data<float>();
  for (std::vector<float>& packet : packets_) {
    to = std::copy(packet.begin(), packet.end(), to);
    packet = {};
  }
  world_.all_to_all(out, out_counts, in, in_counts);

  const std::span<const float> arrived(out.data<float>(), size_t(out.numel()));
  for (size_t at = 0; at < arrived.size();) {
    Header header;
    check(arrived.size() - at >= kHeaderWords, "a header of {} words is cut off", kHeaderWords);
    std::memcpy(&header, arrived.data() + at, sizeof header);
    at += kHeaderWords;
    check(header.count > 0 && uint64_t(header.count) <= arrived.size() - at, "a run of {} elements is cut off",
          header.count);
    receive(header.tensor, header.first, arrived.subspan(at, size_t(header.count)));
    at += size_t(header.count);
  }
}

void TensorExchange::finish() {
  flush();
  for (size_t i = 0; i < open_.size(); ++i)
    check(!open_[i].whole || open_[i].elements == open_[i].whole.numel(),
          "tensor {} has {} elements, but ranks gave {}", i, open_[i].whole ? open_[i].whole.numel() : 0,
          open_[i].elements);
  open_.clear();
}

}  // namespace weft
