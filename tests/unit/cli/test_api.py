from click.testing import CliRunner

from difftest.cli.main import main
from difftest.tools.api.markdown import api_page


def test_the_command_writes_the_page():
    result = CliRunner().invoke(main, ["api"])
    assert result.exit_code == 0
    assert result.stdout == api_page()
