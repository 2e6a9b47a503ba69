#!/usr/bin/env python3
"""Which providers and devices a selection means, and how the program says so."""

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

    def test_a_refused_plugin(self):
        (self.folder / "plugins").mkdir()
        self.save("not a shared object", "plugins/broken.so")
        made = [remark for remark in self.remarks("--plugin-path", "plugins") if "broken.so" in remark]
        self.assertEqual(len(made), 1, made)
        self.assertRegex(made[0], "^providers=auto leaves out the plugin 'broken.so', which is refused: .+")
        self.assertEqual(self.remarks("--plugin-path", "plugins", "--providers", "cpu"), [])
        text = self.succeed("inspect", self.model, "--explain", "--plugin-path", "plugins", "--providers", "auto")
        self.assertIn("Remark: " + made[0], text)


if __name__ == "__main__":
    program.main()
