// The optional interface "bp.device_times" over a provider's streams.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "backplane/plugin_api/optional/device_times.h"

namespace backplane::device_ops {

/// The provider's table. `Stream::record_times(bool)` begins and ends taking times; `times()` is null where none are taken,
/// and otherwise has `take(sink_ctx, sink)`, which returns what the sink does.
template <class Stream>
const bp_device_times& device_times() {
  static const bp_device_times kTable = [] {
    bp_device_times table = sdk::abi_struct<bp_device_times>();
    table.record = [](bp_device*, bp_stream* stream, std::uint32_t on) {
      return sdk::guarded([&] { reinterpret_cast<Stream*>(stream)->record_times(on != 0); });
    };
    table.take = [](bp_device*, bp_stream* stream, void* sink_ctx, bp_device_time_sink sink) {
      bp_status* status = nullptr;
      bp_status* const caught = sdk::guarded([&] {
        if (auto* const times = reinterpret_cast<Stream*>(stream)->times())
          status = times->take(sink_ctx, sink);
      });
      return caught != nullptr ? caught : status;
    };
    return table;
  }();
  return kTable;
}

}  // namespace backplane::device_ops
