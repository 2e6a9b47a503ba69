// The words of the shared operators, for operators of this provider's own.
#pragma once

#include "op_table.hpp"
#include "plugins/common/device_ops/kernel.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/device_ops/window_lines.hpp"
#include "plugins/opencl/launch.hpp"
#include "plugins/opencl/tuner.hpp"

namespace backplane::opencl {

using sdk::DataType;
using sdk::Dims;
using sdk::DimsView;

using device_ops::add_pointwise;
using device_ops::add_strided_copy;
using device_ops::broadcast_view;
using device_ops::dense_view;
using device_ops::device_kernel;
using device_ops::element_types;
using device_ops::Expression;
using device_ops::float_types;
using device_ops::group_for;
using device_ops::input;
using device_ops::is_planar;
using device_ops::kernel_name;
using device_ops::KernelText;
using device_ops::LaunchPlan;
using device_ops::MemoryRef;
using device_ops::number_types;
using device_ops::output;
using device_ops::output_dims;
using device_ops::packed;
using device_ops::Place;
using device_ops::private_domain;
using device_ops::Scalar;
using device_ops::set_sizes;
using device_ops::StridedCopy;
using device_ops::type_code;
using device_ops::View;
using device_ops::Walk;
using device_ops::Window;
using device_ops::WindowAttributes;
using device_ops::WindowLines;
using device_ops::Work;
using device_ops::workspace;

/// The work's device, which is one of this provider.
inline const Device& device_of(const Work& work) {
  return static_cast<const Device&>(work.device());
}

}  // namespace backplane::opencl
