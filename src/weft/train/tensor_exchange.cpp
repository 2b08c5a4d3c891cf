// TensorExchange: runs with a header each, sorted by receiver.
#include "weft/train/tensor_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace weft {
namespace {

constexpr int64_t kFlushBytes = int64_t(256) << 20;  // of whole tensors: bounds what is under way
constexpr int64_t kRoundBytes = int64_t(16) << 20;   // that a rank sends at a time

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
    show_life();
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

void TensorExchange::receive_packet(std::span<const float> packet) {
  while (!packet.empty()) {
    Header header;
    check(packet.size() >= kHeaderWords, "a header of {} words is cut off", kHeaderWords);
    std::memcpy(&header, packet.data(), sizeof header);
    packet = packet.subspan(kHeaderWords);
    check(header.count > 0 && uint64_t(header.count) <= packet.size(), "a run of {} elements is cut off",
          header.count);
    receive(header.tensor, header.first, packet.first(size_t(header.count)));
    packet = packet.subspan(size_t(header.count));
    show_life();
  }
}

void TensorExchange::flush() {
  bytes_ = 0;
  if (world_.size() == 1) return;
  for (std::vector<float>& packet : swap_packets()) {
    receive_packet(packet);
    packet = {};
  }
}

// Sends each rank its packet; returns those that came.
std::vector<std::vector<float>> TensorExchange::swap_packets() {
  const auto size = size_t(world_.size());
  const std::vector<int64_t> ones(size, 1);
  const Tensor sent = memory_.empty(DType::i64, {int64_t(size)}), coming = memory_.empty(DType::i64, {int64_t(size)});
  const Tensor most = memory_.zeros(DType::i64, {1});
  int64_t& longest = *most.data<int64_t>();
  for (size_t r = 0; r < size; ++r) {
    sent.data<int64_t>()[r] = int64_t(packets_[r].size());
    longest = std::max(longest, int64_t(packets_[r].size()));
  }
  world_.all_to_all(coming, ones, sent, ones);
  world_.all_reduce(most, Reduction::max);

  std::vector<std::vector<float>> arrived(size);
  std::vector<int64_t> in_counts(size), out_counts(size);
  const int64_t each = std::min(longest, std::max<int64_t>(kRoundBytes / int64_t(sizeof(float) * size), 1));
  const Tensor in = memory_.empty(DType::f32, {each * int64_t(size)});
  const Tensor out = memory_.empty(DType::f32, {each * int64_t(size)});
  for (int64_t begin = 0; begin < longest; begin += each) {
    const auto part_of = [&](int64_t whole) { return std::clamp<int64_t>(whole - begin, 0, each); };
    float* to = in.data<float>();
    for (size_t r = 0; r < size; ++r) {
      in_counts[r] = part_of(sent.data<int64_t>()[r]), out_counts[r] = part_of(coming.data<int64_t>()[r]);
      if (in_counts[r] > 0) to = std::copy_n(packets_[r].data() + begin, in_counts[r], to);
    }
    world_.all_to_all(out.slice_rows(0, std::reduce(out_counts.begin(), out_counts.end())), out_counts,
                      in.slice_rows(0, std::reduce(in_counts.begin(), in_counts.end())), in_counts);
    const float* from = out.data<float>();
    for (size_t r = 0; r < size; ++r, from += out_counts[r - 1])
      arrived[r].insert(arrived[r].end(), from, from + out_counts[r]);
  }
  for (std::vector<float>& packet : packets_) packet = {};
  return arrived;
}

void TensorExchange::show_life() {
  if (std::atomic<uint64_t>* const pulse = world_.pulse()) pulse->fetch_add(1, std::memory_order_relaxed);
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
