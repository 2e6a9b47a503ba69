#!/usr/bin/env python3
"""Which providers and devices a selection means, and how the program says so."""

import re

import program

FIXTURES = program.BUILD / "tests/fixtures"
FAKES = ("--plugin-path", FIXTURES)


class Devices(program.ProgramTest):
    """A provider with several devices: the fake one has two."""

    BEST = {"BACKPLANE_FAKEGPU_BEST": "1"}

    def setUp(self):
        super().setUp()
        self.model = self.save(program.relu_model())

    def explain(self, providers, **more):
        return self.json_of("inspect", self.model, *FAKES, "--providers", providers, **more)

    def test_a_name_alone_means_the_best_device(self):
        self.assertEqual(self.explain("fakegpu,cpu")["nodes"][0]["provider"], "fakegpu:0")
        made = self.explain("fakegpu,cpu", environment=self.BEST)
        self.assertEqual(made["nodes"][0]["provider"], "fakegpu:1")
        made = self.explain("fakegpu:0,cpu", environment=self.BEST)
        self.assertEqual(made["nodes"][0]["provider"], "fakegpu:0")

    def test_the_explanation_says_which_and_why(self):
        remark = ("provider 'fakegpu' has 2 devices, and its name alone means fakegpu:1, 'fake device 1': "
                  "it has the highest score, 60")
        self.assertEqual(self.explain("fakegpu,cpu", environment=self.BEST)["remarks"], [remark])
        self.assertEqual(self.explain("fakegpu:1,cpu", environment=self.BEST)["remarks"], [])
        text = self.succeed("inspect", self.model, "--explain", *FAKES, "--providers", "fakegpu", environment=self.BEST)
        self.assertIn("Remark: " + remark, text)

    def test_providers_say_which(self):
        rows = {row["provider"]: row for row in self.json_of("providers", *FAKES, environment=self.BEST)}
        self.assertEqual(rows["fakegpu"]["best_device"], 1)
        self.assertEqual(rows["cpu"]["best_device"], 0)
        text = self.succeed("providers", *FAKES, environment=self.BEST)
        self.assertRegex(text, r"1: fake device 1 [^;]*, the one that 'fakegpu' alone means")


class Precision(program.ProgramTest):
    """Which arithmetic the providers of a selection offer."""

    def setUp(self):
        super().setUp()
        self.model = self.save(program.relu_model())

    def test_the_cpu_offers_bfloat16(self):
        made = self.json_of("bench", self.model, "--providers", "cpu", "--precision", "bf16", "--runs", "1")
        self.assertEqual(made["precision"], "bf16")
        self.fail_with(2, ["'tf32' is not one of fp32|bf16"], "run", self.model, "--providers", "cpu", "--precision", "tf32")

    def test_a_provider_without_such_an_option_offers_floats_alone(self):
        self.fail_with(2, ["provider 'null' computes float tensors in fp32 alone"], "run", self.model, *FAKES,
                       "--providers", "null", "--precision", "bf16", "--fallback", "forbid")


class Auto(program.ProgramTest):
    """All providers with a device; who is left out is remarked."""

    def setUp(self):
        super().setUp()
        self.model = self.save(program.relu_model())

    def remarks(self, *arguments, **more):
        return self.json_of("inspect", self.model, *arguments, **more)["remarks"]

    def test_a_provider_without_a_device(self):
        made = self.remarks(*FAKES, environment={"BACKPLANE_FAKEGPU_DEVICES": "0"})
        self.assertTrue(any(remark.startswith("providers=auto leaves out the provider 'fakegpu', which has no device")
                            for remark in made), made)
        self.assertFalse(any("leaves out the provider 'fakegpu'" in remark for remark in self.remarks(*FAKES)))

    def test_nobody_has_a_device(self):
        others = [str(path) for path in (program.BUILD / "lib/backplane/plugins").glob("*.so")]
        (self.folder / "plugins").mkdir()
        (self.folder / "plugins/fakegpu.so").symlink_to(FIXTURES / "fakegpu.so")
        self.fail_with(2, ["no provider has a device", "'fakegpu' has no device"], "inspect", self.model, "--plugin-path", "plugins",
                       "--set", f"environment.plugin_exclude={':'.join(others)}", environment={"BACKPLANE_FAKEGPU_DEVICES": "0"})

    def test_a_provider_that_is_passed_over_is_not_asked_for_devices(self):
        """It would have none, and say so, had it been asked."""
        none = {"BACKPLANE_FAKEGPU_DEVICES": "0", "BACKPLANE_FAKEGPU_PASS_OVER": "a driver that is slow to open"}
        told = "providers=auto leaves out the provider 'fakegpu', which serves only when it is named: a driver that is slow to open"
        self.assertIn(told, self.remarks(*FAKES, environment=none))
        self.assertTrue(any("which has no device" in one for one in
                            self.remarks(*FAKES, environment=none | {"BACKPLANE_FAKEGPU_PASS_OVER": "fail"})))
        others = [str(path) for path in (program.BUILD / "lib/backplane/plugins").glob("*.so")]
        (self.folder / "plugins").mkdir()
        (self.folder / "plugins/fakegpu.so").symlink_to(FIXTURES / "fakegpu.so")
        self.fail_with(2, ["no provider has a device", "'fakegpu' serves only when it is named: a driver"], "inspect", self.model,
                       "--plugin-path", "plugins", "--set", f"environment.plugin_exclude={':'.join(others)}", environment=none)

    def test_a_provider_that_is_passed_over_serves_who_names_it(self):
        shy = {"BACKPLANE_FAKEGPU_PASS_OVER": "a driver that is slow to open"}
        made = self.json_of("inspect", self.model, *FAKES, "--providers", "fakegpu,cpu", "--explain", environment=shy)
        self.assertEqual([node["provider"] for node in made["nodes"]], ["fakegpu:0"])
        rows = self.json_of("providers", *FAKES, environment=shy)
        rows = rows["plugins"] if isinstance(rows, dict) else rows
        self.assertEqual([len(row["devices"]) for row in rows if row.get("provider") == "fakegpu"], [2])

    def test_a_refused_plugin(self):
        (self.folder / "plugins").mkdir()
        self.save("not a shared object", "plugins/broken.so")
        made = [remark for remark in self.remarks("--plugin-path", "plugins") if "broken.so" in remark]
        self.assertEqual(len(made), 1, made)
        self.assertRegex(made[0], "^providers=auto leaves out the plugin 'broken.so', which is refused: .+")
        self.assertEqual(self.remarks("--plugin-path", "plugins", "--providers", "cpu"), [])
        text = self.succeed("inspect", self.model, "--explain", "--plugin-path", "plugins", "--providers", "auto")
        self.assertIn("Remark: " + made[0], text)


class Unopened(program.ProgramTest):
    """A device that is there and does not open: left out by auto, with a warning."""

    BROKEN = (*FAKES, "--set", "provider.fakegpu.fail_at=1", "--set", "provider.fakegpu.fail_code=device_lost")
    WARNING = (r"^backplane: warning: providers=auto leaves out 'fakegpu': device 'fakegpu:0' cannot be opened: [^\n]*; "
               r"providers=([a-z0-9_,]+) does without it and without this warning\n$")

    def setUp(self):
        super().setUp()
        self.model = self.save(program.relu_model())
        self.x = f"x={self.save(program.X, 'x.npy')}"

    def standard_error(self, *arguments):
        made = self.run_program(*arguments)
        self.assertEqual(made.returncode, 0, made.stderr)
        return made.stderr.decode()

    def test_it_is_left_out_with_a_warning(self):
        for command in (("run", self.model, "--input", self.x, "--json"), ("bench", self.model, "--runs", "1", "--json")):
            with self.subTest(command[0]):
                self.assertRegex(self.standard_error(*command, *self.BROKEN), self.WARNING)
                made = self.json_of(*command[:-1], *self.BROKEN)
                self.assertNotIn("fakegpu", made.get("providers", []))
        remarks = self.json_of("inspect", self.model, *self.BROKEN)["remarks"]
        self.assertTrue(any(one.startswith("providers=auto leaves out 'fakegpu': device") for one in remarks), remarks)

    def test_the_warning_says_what_silences_it(self):
        others = re.match(self.WARNING, self.standard_error("inspect", self.model, *self.BROKEN)).group(1)
        self.assertEqual(self.standard_error("inspect", self.model, *self.BROKEN, "--set", f"providers={others}"), "")
        self.assertEqual(self.standard_error("inspect", self.model, *self.BROKEN, "--set", "environment.log_level=error"), "")

    def test_it_is_said_once(self):
        self.assertRegex(self.standard_error("bench", self.model, "--sessions", "3", "--runs", "1", *self.BROKEN), self.WARNING)

    def test_verify_says_it_once_for_all_its_workers(self):
        for name in "abcd":
            self.save_case(name, program.relu_model(), [program.X], [program.X.clip(0)])
        made = self.run_program("verify", ".", "--jobs", "2", *self.BROKEN)
        self.assertEqual(made.stdout, b"4 passed, 0 failed, 0 skipped\n")
        self.assertRegex(made.stderr.decode(), self.WARNING)
        made = self.run_program("verify", ".", "--jobs", "2", "--place", "op:Conv=cpu")
        self.assertEqual((made.returncode, made.stderr), (0, b""))

    def test_who_insists_on_it_gets_an_error(self):
        for more in (("--fallback", "forbid"), ("--place", "op:Relu=fakegpu"), ("--place", "op:Relu=fakegpu:0")):
            with self.subTest(more[1]):
                self.fail_with(3, ["cannot be opened"], "inspect", self.model, *self.BROKEN, *more)

    def test_an_optional_one_is_warned_of_too(self):
        made = self.standard_error("inspect", self.model, *self.BROKEN, "--providers", "fakegpu?,cpu")
        self.assertRegex(made, r"^backplane: warning: the optional provider 'fakegpu' is left out: device [^\n]*; providers=cpu ")
        self.assertEqual(self.standard_error("inspect", self.model, "--providers", "nobody?,cpu"), "")


class Optional(program.ProgramTest):
    """NAME? is used where it is there, and left out with a remark where it is not."""

    def setUp(self):
        super().setUp()
        self.model = self.save(program.relu_model())

    def explain(self, providers, *arguments, **more):
        return self.json_of("inspect", self.model, *FAKES, "--providers", providers, *arguments, **more)

    def test_it_is_used_where_it_is_there(self):
        made = self.explain("fakegpu?:1,cpu")
        self.assertEqual((made["nodes"][0]["provider"], made["remarks"]), ("fakegpu:1", []))
        self.assertEqual(self.explain("fakegpu?,cpu")["nodes"][0]["provider"], "fakegpu:0")

    def test_it_is_left_out_where_it_is_not(self):
        for name, why in (("nobody?", "there is no provider 'nobody'"), ("fakegpu?:5", "has no device 5"),
                          ("fakegpu?:name=Other", "has no device called 'Other'")):
            with self.subTest(name):
                made = self.explain(f"{name},cpu")
                self.assertEqual(made["nodes"][0]["provider"], "cpu")
                self.assertEqual(len(made["remarks"]), 1, made["remarks"])
                plain = name.replace("?", "")
                self.assertTrue(made["remarks"][0].startswith(f"the optional provider '{plain}' is left out: "))
                self.assertIn(why, made["remarks"][0])
        made = self.explain("fakegpu?,cpu", environment={"BACKPLANE_FAKEGPU_DEVICES": "0"})
        self.assertRegex(made["remarks"][0], "^the optional provider 'fakegpu' is left out: it has no device")

    def test_a_device_that_does_not_open_is_left_out(self):
        broken = ("--set", "provider.fakegpu.fail_at=1", "--set", "provider.fakegpu.fail_code=device_lost")
        made = self.explain("fakegpu?,cpu", *broken)
        self.assertEqual(made["nodes"][0]["provider"], "cpu")
        self.assertIn("'fakegpu' is left out: device 'fakegpu:0' cannot be opened", made["remarks"][0])
        self.fail_with(3, ["cannot be opened"], "inspect", self.model, *FAKES, "--providers", "fakegpu,cpu", *broken)

    def test_only_optional_ones_are_left_out(self):
        self.fail_with(2, ["'nobody'"], "inspect", self.model, *FAKES, "--providers", "nobody,cpu")
        self.fail_with(2, ["no device 5"], "inspect", self.model, *FAKES, "--providers", "fakegpu:5,cpu")

    def test_what_is_said_of_it_is_left_out_too(self):
        more = ("--place", "op:Relu=nobody", "--set", "memory_limit.nobody=1MiB", "--set", "provider.nobody.x=1")
        self.assertEqual(self.explain("nobody?,cpu", *more)["nodes"][0]["provider"], "cpu")
        more = ("--place", "op:Relu=nobody", "--set", "memory_limit.nobody=1MiB")
        self.fail_with(2, ["'nobody'"], "inspect", self.model, "--providers", "cpu", *more)

    def test_providers_may_be_asked_for_the_same_selection(self):
        more = ("--providers", "nobody?,cpu", "--place", "op:Relu=nobody", "--set", "provider.nobody.x=1")
        self.assertTrue(self.json_of("providers", *more))
        self.fail_with(2, ["'nobody'"], "providers", "--providers", "nobody,cpu")

    def test_those_of_paths_are_remarked_by_path(self):
        made = self.explain("cpu", "--set", "path.fast.providers=nobody?,cpu")
        self.assertEqual(len(made["remarks"]), 1, made["remarks"])
        self.assertRegex(made["remarks"][0], "^path 'fast': the optional provider 'nobody' is left out: ")
        made = self.explain("nobody?,cpu", "--set", "path.fast.threads=1")
        self.assertEqual(len(made["remarks"]), 1, "the path has the session's providers")

    def test_the_help_says_so(self):
        self.assertRegex(" ".join(self.succeed("run", "--help").split()), r"NAME\?: optional")

    def test_its_options_are_judged_where_it_is_there(self):
        self.fail_with(2, ["'sed'", "did you mean 'seed'"], "inspect", self.model, *FAKES, "--providers", "fakegpu?,cpu",
                       "--set", "provider.fakegpu.sed=1")

    def test_when_all_are_left_out_the_fallback_serves(self):
        self.assertEqual(self.explain("nobody?", "--fallback", "allow")["nodes"][0]["provider"], "cpu")
        self.fail_with(2, ["the_relu"], "inspect", self.model, "--providers", "nobody?", "--fallback", "forbid")

    def test_the_mark_stands_behind_the_name(self):
        self.fail_with(2, ["'fakegpu:1?'", "name?:1"], "inspect", self.model, *FAKES, "--providers", "fakegpu:1?")
        self.fail_with(2, ["--providers", "twice"], "inspect", self.model, *FAKES, "--providers", "cpu?,cpu")
        self.fail_with(2, ["cpu?"], "inspect", self.model, "--place", "op:Relu=cpu?")


class ProviderOptions(program.ProgramTest):
    """What each provider takes is listed from its plugin."""

    def test_in_json(self):
        rows = {row["provider"]: row for row in self.json_of("providers", *FAKES)}
        options = {option["name"]: option for option in rows["fakegpu"]["options"]}
        self.assertEqual(options["integrated"], {
            "name": "integrated", "type": "bool", "default": "false", "range": "",
            "meaning": "Whether a device views host memory instead of having it copied."})
        self.assertEqual((options["view_alignment"]["type"], options["view_alignment"]["range"]), ("int", "1..65536"))
        for row in rows.values():
            self.assertIsInstance(row["options"], list)
        self.assertEqual(rows["fakegpu"], {row["provider"]: row
                                           for row in self.json_of("providers", *FAKES, "--options")}["fakegpu"])

    def test_as_a_table(self):
        self.assertNotIn("view_alignment", self.succeed("providers", *FAKES))
        text = self.succeed("providers", *FAKES, "--options")
        self.assertIn("Options of 'fakegpu', set with --set provider.fakegpu.OPTION=VALUE\n", text)
        self.assertRegex(text, r"\n  integrated +false +bool +Whether a device views host memory")
        self.assertRegex(text, r"\n  view_alignment +64 +1\.\.65536 +What the host's memory is aligned to")


if __name__ == "__main__":
    program.main()
