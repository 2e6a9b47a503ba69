/* c.ops::Half: y = x / 2, described and computed in C99 alone. */
#include <stddef.h>

#include "backplane/plugin_api.h"

const bp_plugin* c_domain(void);
int c_domain_is_started(void);

static const bp_host_api* host;

static bp_status* create(void* self, const bp_create_ctx* ctx, const bp_node* node,
                         bp_kernel** out) {
  (void)ctx;
  (void)node;
  *out = (bp_kernel*)self;
  return NULL;
}
static void destroy(bp_kernel* kernel) { (void)kernel; }

static bp_status* prepare(bp_kernel* kernel, bp_prepare_ctx* ctx, bp_prepared** out) {
  const bp_tensor* x = ctx->inputs[0]->tensor;
  *out = (bp_prepared*)kernel;
  return ctx->api->set_output(ctx, 0, BP_FLOAT, x->rank, x->dims);
}
static void release(bp_prepared* prepared) { (void)prepared; }

static bp_status* compute(const bp_prepared* prepared, const bp_kctx* ctx) {
  const bp_tensor* x = ctx->inputs[0]->tensor;
  const float* from = (const float*)x->host_ptr;
  float* to = (float*)ctx->outputs[0]->tensor->host_ptr;
  uint64_t i;
  (void)prepared;
  for (i = 0; i < x->bytes / sizeof(float); ++i) to[i] = from[i] / 2;
  return NULL;
}

static bp_kernel_def kernel;
static bp_param x_param, y_param;
static const bp_param* const inputs[] = {&x_param};
static const bp_param* const outputs[] = {&y_param};
static bp_op_schema schema;
static const bp_op_schema* const schemas[] = {&schema};
static bp_plugin plugin;

static bp_status* init(void* self, const bp_host_api* api) {
  (void)self;
  host = api;
  return NULL;
}
static void end(void* self) {
  (void)self;
  host = NULL;
}
static bp_status* kernels_for(void* self, const char* provider, void* sink_ctx,
                              bp_kernel_sink sink) {
  (void)self;
  return provider[0] == '\0' ? sink(sink_ctx, &kernel) : NULL;
}

int c_domain_is_started(void) { return host != NULL; }

const bp_plugin* c_domain(void) {
  if (plugin.struct_size != 0) return &plugin;
  x_param.struct_size = y_param.struct_size = sizeof(bp_param);
  x_param.name = "x";
  y_param.name = "y";
  x_param.type = y_param.type = "tensor(float)";
  x_param.doc = y_param.doc = "";
  schema.struct_size = sizeof(schema);
  schema.domain = "c.ops";
  schema.name = "Half";
  schema.doc = "";
  schema.since_version = 1;
  schema.inputs = inputs;
  schema.outputs = outputs;
  schema.input_count = schema.output_count = 1;
  kernel.struct_size = sizeof(kernel);
  kernel.domain = "c.ops";
  kernel.op_type = "Half";
  kernel.name = "c:half";
  kernel.since_min = kernel.since_max = 1;
  kernel.self = &kernel;
  kernel.create = create;
  kernel.destroy = destroy;
  kernel.prepare = prepare;
  kernel.release = release;
  kernel.compute = compute;
  plugin.abi_minor_built = BP_ABI_MINOR;
  plugin.name = "c_domain";
  plugin.vendor = "";
  plugin.version = "1";
  plugin.schemas = schemas;
  plugin.schema_count = 1;
  plugin.init = init;
  plugin.shutdown = end;
  plugin.kernels_for = kernels_for;
  plugin.struct_size = sizeof(plugin);
  return &plugin;
}
