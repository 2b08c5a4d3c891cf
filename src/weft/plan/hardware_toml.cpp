// hardware_toml: a machine's figures as a file to keep, and to change.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/units.h"
#include "weft/plan/hardware.h"

namespace weft::plan {

std::string hardware_toml(const Hardware& h) {
  std::string out = fmt::format("# {}. Measured by weft plan --measure.\nname = \"{}\"\ndescription = \"{}\"\n",
                                h.description, h.name, h.description);
  const auto add = [&]<class... Args>(fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(out), text, std::forward<Args>(args)...);
  };
  add("\n[memory]             # of the machine, which its ranks share\ngib = {:.5g}\nreserved_gib = {:.5g}\n",
      gib(h.memory_bytes), gib(h.reserved_bytes));
  add("gb_s = {:.5g}\nreached = {:.4g}\n", h.memory_bytes_per_s / 1e9, h.memory_reached);
  add("\n[device]\ncores = {}\nlaunch_us = {:.4g}   # from the end of a kernel to the work of the next\n", h.cores,
      h.launch_s * 1e6);
  add("\n[matmul]             # all cores: TFLOP/s of independent multiply-adds, and the share that products reach\n"
      "tile = [{}, {}]\nsustained = {:.4g}\nhalf_depth = {:.4g}\n",
      h.tile_m, h.tile_n, h.sustained, h.half_depth);
  for (int i = 0; i < kNumMatmulTypes; ++i)
    if (h.peak_flops[size_t(i)] > 0)
      add("{} = [{:.5g}, {:.4g}]\n", name_of(MatmulType(i)), h.peak_flops[size_t(i)] / 1e12, h.reached[size_t(i)]);
  add("\n[attention]\nforward = {:.4g}\nbackward = {:.4g}\n", h.attention_forward, h.attention_backward);
  const auto link = [&](const Link& l) {
    add("gb_s = {:.4g}\nreached = {:.4g}\nlatency_us = {:.4g}\nhalf_mib = {:.4g}\n", l.bytes_per_s / 1e9, l.reached,
        l.latency_s * 1e6, l.half_bytes / kMebi);
  };
  add("\n[node]\ndevices = {}\n", h.devices_per_node);
  if (h.host_bytes > 0) add("host_gib = {:.5g}\n", gib(h.host_bytes));
  link(h.node);
  out += "\n[network]            # not measured: 10 Gb/s\n";
  link(h.network);
  if (!h.kernel_bytes_per_s.empty()) {
    std::vector<std::string> names;
    std::vector<double> rates;
    for (const auto& [name, rate] : h.kernel_bytes_per_s)
      names.push_back(fmt::format("\"{}\"", name)), rates.push_back(rate / 1e9);
    add("\n[kernels]            # what each moves in a second, all cores\nnames = [{}]\ngb_s = [{:.4g}]\n",
        fmt::join(names, ", "), fmt::join(rates, ", "));
  }
  if (!h.is_shared()) return out;
  const auto column = [&](std::string_view key, double Sharing::*member, double unit) {
    std::vector<double> values;
    for (const Sharing& s : h.sharing) values.push_back(s.*member / unit);
    add("{} = [{:.4g}]\n", key, fmt::join(values, ", "));
  };
  std::vector<int> ranks;
  for (const Sharing& s : h.sharing) ranks.push_back(s.ranks);
  add("\n[sharing]            # what one of so many ranks has, beside one rank alone\nranks = [{}]\n",
      fmt::join(ranks, ", "));
  column("speed", &Sharing::speed, 1), column("alone", &Sharing::alone, 1), column("memory", &Sharing::memory, 1);
  column("launch_us", &Sharing::launch_s, 1e-6);
  column("gb_s", &Sharing::link_bytes_per_s, 1e9), column("latency_us", &Sharing::link_latency_s, 1e-6);
  return out;
}

}  // namespace weft::plan
