#!/usr/bin/env python3
"""The command line itself: help, mistakes, and what every subcommand shares."""

import os

import numpy as np

import program
from program import X


class Usage(program.ProgramTest):
    def test_help_lists_the_commands(self):
        text = self.succeed("--help")
        for command in ("run", "bench", "verify", "inspect", "providers"):
            self.assertIn(command, text)
            self.assertIn("--providers", self.succeed(command, "--help"))
        self.assertIn("check", text)

    def test_version(self):
        self.assertRegex(self.succeed("--version"), r"^\d+\.\d+\.\d+\n$")

    def test_no_command(self):
        self.fail_with(2, ["no command", "inspect"])

    def test_unknown_command_suggests_the_nearest(self):
        self.fail_with(2, ["'verfy'", "did you mean 'verify'"], "verfy")
        self.fail_with(2, ["'zzzzzz'", "known are run bench"], "zzzzzz")

    def test_unknown_option_suggests_the_nearest(self):
        self.fail_with(2, ["'--outptu'", "did you mean '--output'"], "run", "m.onnx", "--outptu", "y")
        self.fail_with(2, ["'--provider'", "did you mean '--providers'"], "bench", "m.onnx", "--provider", "a")
        self.fail_with(2, ["'--thread'", "'--threads'"], "bench", "m.onnx", "--thread=2")

    def test_missing_and_extra_arguments(self):
        self.fail_with(2, ["MODEL"], "run")
        self.fail_with(2, ["DIR"], "verify")
        self.fail_with(2, ["'b.onnx'"], "run", "a.onnx", "b.onnx")
        self.fail_with(2, ["--input"], "run", "a.onnx", "--input")
        self.fail_with(2, ["'--providers=' has no value"], "run", "a.onnx", "--providers=", "--input", "x=x.npy")

    def test_numbers_out_of_range(self):
        self.fail_with(2, ["--runs"], "bench", "a.onnx", "--runs", "0")
        self.fail_with(2, ["--runs"], "bench", "a.onnx", "--runs", "many")
        self.fail_with(2, ["--jobs"], "verify", ".", "--jobs", "-1")
        self.fail_with(2, ["--rtol"], "verify", ".", "--rtol", "-1")
        self.fail_with(2, ["--rtol"], "verify", ".", "--rtol", "nan")

    def test_numbers_are_decimal_and_whole_where_they_count(self):
        self.fail_with(2, ["--seed", "'18446744073709551616'", "to 18446744073709551615"], "check", "a.so", "--seed", 2**64)
        self.fail_with(2, ["--seed", "'-1' is not a whole number from 0 to 18446744073709551615"], "check", "a.so", "--seed", "-1")
        self.fail_with(2, ["--jobs", "'0x10'"], "verify", ".", "--jobs", "0x10")
        for timeout in ("nan", "inf", "-1"):
            self.fail_with(2, ["--timeout", f"'{timeout}' is not a number from 0 to"], "run", "a.onnx", "--timeout", timeout)

    def test_models_that_are_not_there_or_no_models(self):
        self.fail_with(2, ["none.onnx"], "run", "none.onnx")
        self.fail_with(2, ["text.onnx"], "inspect", self.save("not a model", "text.onnx"))
        self.fail_with(2, ["empty.onnx"], "bench", self.save(b"", "empty.onnx"))
        self.fail_with(2, [str(self.folder)], "inspect", self.folder)

    def test_a_full_standard_output_is_a_failed_run(self):
        path = self.save(program.relu_model())
        with open("/dev/full", "w", encoding="utf-8") as full:
            made = program.subprocess.run([str(program.PROGRAM), "inspect", str(path), "--json"], stdout=full,
                                          stderr=program.subprocess.PIPE, check=False, timeout=60)
        self.assertEqual(made.returncode, 3, made.stderr)
        self.assertIn(b"standard output", made.stderr)

    def test_a_closed_pipe_is_no_signal(self):
        path = self.save(program.relu_model())
        reader, writer = os.pipe()
        os.close(reader)
        made = program.subprocess.run([str(program.PROGRAM), "inspect", str(path)], stdout=writer,
                                      stderr=program.subprocess.PIPE, check=False, timeout=60)
        os.close(writer)
        self.assertEqual(made.returncode, 3, made.stderr)

    def test_closed_standard_streams_are_taken_by_nothing_else(self):
        self.save_case("cases/relu", program.relu_model(), [X], [np.maximum(X, 0)])
        for closed, command, code in ((">&-", "verify cases --json v.json", 3), (">&-", "providers", 3),
                                      ("<&- 2>&-", "verify cases --json v.json", 0), ("<&- >&- 2>&-", "--version", 3)):
            with self.subTest(command, closed=closed):
                made = program.subprocess.run(["bash", "-c", f'exec "$0" {command} {closed}', str(program.PROGRAM)], check=False,
                                              capture_output=True, cwd=self.folder, timeout=60)
                self.assertEqual(made.returncode, code, made.stderr)
                if "2>&-" not in closed:
                    self.assertEqual(made.stderr, b"backplane: cannot write to standard output\n")
                if "v.json" in command:
                    results = program.json.loads((self.folder / "v.json").read_text())
                    self.assertEqual(results["relu"]["status"], "pass")
                    (self.folder / "v.json").unlink()


class Selection(program.ProgramTest):
    """Where options come from, and which one counts."""

    def setUp(self):
        super().setUp()
        self.model = self.save(program.relu_model())
        np.save(self.folder / "x.npy", X)

    def provider(self, *arguments, **more):
        """The provider of the only node."""
        return self.json_of("inspect", self.model, *arguments, **more)["nodes"][0]["provider"]

    def test_the_default_is_a_provider_with_a_device(self):
        self.assertEqual(self.provider(), "cpu")

    def test_unknown_providers_suggest_the_nearest_wherever_they_come_from(self):
        mentions = ["'cpuu'", "'cpu'"]
        config = self.save('providers = "cpuu"\n', "c.toml")
        self.fail_with(2, mentions, "inspect", self.model, "--providers", "cpuu")
        self.fail_with(2, mentions, "inspect", self.model, "--config", config)
        self.fail_with(2, mentions, "inspect", self.model, environment={"BACKPLANE_PROVIDERS": "cpuu"})
        self.fail_with(2, mentions, "inspect", self.model, environment={"BACKPLANE_CONFIG": str(config)})
        self.fail_with(2, mentions, "bench", self.model, "--set", "providers=cpuu")
        case = self.save_case("cases/a", program.relu_model(), [X], [np.maximum(X, 0)])
        self.fail_with(2, mentions, "verify", case, "--providers", "cpuu")

    def test_commands_that_open_no_provider_by_name_know_the_names(self):
        mentions = ["no provider 'cpuu'", "did you mean 'cpu'"]
        library = program.BUILD / "lib/backplane/plugins/cpu.so"
        for command in (["providers"], ["check", library, "--only", "handshake.*"]):
            for option, text in (("--providers", "cpuu"), ("--place", "op:Relu=cpuu"), ("--set", "provider.cpuu.isa=avx2")):
                self.fail_with(2, [option, *mentions], *command, option, text)
            self.succeed(*command, "--providers", "cpu:0", "--place", "op:Relu=cpu")
        self.fail_with(2, ["'provider.cpuu.isa'", *mentions], "inspect", self.model, "--set", "provider.cpuu.isa=avx2")

    def test_command_line_over_environment_over_file(self):
        bad = self.save('providers = "file_provider"\n', "bad.toml")
        self.fail_with(2, ["file_provider"], "inspect", self.model, "--config", bad)
        environment = {"BACKPLANE_PROVIDERS": "env_provider"}
        self.fail_with(2, ["env_provider"], "inspect", self.model, "--config", bad, environment=environment)
        self.fail_with(2, ["line_provider"], "inspect", self.model, "--config", bad, "--providers", "line_provider",
                       environment=environment)
        self.assertEqual(self.provider("--config", bad, "--providers", "cpu", environment=environment), "cpu")

    def test_config_stands_in_place_of_its_variable(self):
        bad = self.save('providers = "from_variable"\n', "bad.toml")
        good = self.save('providers = "cpu"\n', "good.toml")
        variable = {"BACKPLANE_CONFIG": str(bad)}
        self.fail_with(2, ["from_variable"], "inspect", self.model, environment=variable)
        self.assertEqual(self.provider("--config", good, environment=variable), "cpu")

    def test_dedicated_options_over_set(self):
        self.assertEqual(self.provider("--providers", "cpu", "--set", "providers=zzz"), "cpu")

    def test_wrong_settings_name_key_and_file(self):
        self.fail_with(2, ["'thread'", "'threads'"], "inspect", self.model, "--set", "thread=1")
        self.fail_with(2, ["'environment.thread' is not known; did you mean 'environment.threads'"], "inspect", self.model, "--set",
                       "environment.thread=1")
        self.fail_with(2, ["KEY=VALUE"], "inspect", self.model, "--set", "threads")
        self.fail_with(2, ["c.toml:2", "'fallbak'", "'fallback'"], "inspect", self.model, "--config",
                       self.save("threads = 1\nfallbak = 'warn'\n", "c.toml"))
        self.fail_with(2, ["none.toml"], "inspect", self.model, "--config", "none.toml")
        self.fail_with(2, ["--threads", "many"], "inspect", self.model, "--threads", "many")
        self.fail_with(2, ["--fallback", "never"], "inspect", self.model, "--fallback", "never")
        self.fail_with(2, ["--precision", "fp8"], "bench", self.model, "--precision", "fp8")
        self.fail_with(2, ["PATTERN=PROVIDER"], "inspect", self.model, "--place", "op:Relu")
        self.fail_with(2, ["--plugin-path", "'nowhere'"], "inspect", self.model, "--plugin-path", "nowhere")
        self.fail_with(2, ["none.so"], "inspect", self.model, "--custom-ops", "none.so")
        self.fail_with(2, ["--custom-ops", "needs a path"], "inspect", self.model, "--custom-ops", "")

    def test_what_is_given_twice_is_an_error_that_names_it(self):
        """Else one of the two would win, and nobody knew which."""
        dynamic = self.save(program.relu_model(("batch", 3)), "dynamic.onnx")
        for option, first, second, name in (("--dim", "batch=2", "batch=3", "batch"), ("--set", "threads=1", "threads=2", "threads"),
                                            ("--place", "op:Relu=cpu", "op:Relu=cpu", "op:Relu")):
            self.fail_with(2, [option, f"'{name}'", "twice"], "inspect", dynamic, option, first, option, second)
        self.fail_with(2, ["'cpu'", "twice"], "inspect", dynamic, "--providers", "cpu,cpu")
        self.fail_with(2, ["--threads is given twice"], "inspect", dynamic, "--threads", "1", "--threads", "2")
        self.fail_with(2, ["--providers is given twice"], "run", dynamic, "--providers", "cpu", "--json", "--providers", "cpu")
        self.fail_with(2, ["c.toml:2", "'threads'"], "inspect", dynamic, "--config", self.save("threads = 1\nthreads = 2\n", "c.toml"))

    def test_dims_are_checked(self):
        dynamic = self.save(program.relu_model(("batch", 3)), "dynamic.onnx")
        shape = self.json_of("inspect", dynamic, "--dim", "batch=5")["inputs"][0]["shape"]
        self.assertEqual(shape, [5, 3])
        self.assertEqual(self.json_of("inspect", dynamic)["inputs"][0]["shape"], ["batch", 3])
        self.fail_with(2, ["'bach'", "batch"], "inspect", dynamic, "--dim", "bach=5")
        self.fail_with(2, ["batch"], "inspect", dynamic, "--dim", "batch=-5")
        self.fail_with(2, ["NAME=N"], "inspect", dynamic, "--dim", "batch")


if __name__ == "__main__":
    program.main()
